/** The gradient of an embedding, which adds its rows into what other uses of the weight gave. */
import assert from 'node:assert/strict';
import {
  autograd,
  float64,
  int64,
  manualSeed,
  memory,
  nn,
  profiler,
  randn,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';

/** The number of calls of each op in a backward pass. */
function opsOfBackward(loss: Tensor): Map<string, number> {
  const prof = profiler.profile({ activities: ['cpu'] }, () => loss.backward());
  return new Map([...prof.keyAverages()].map(({ key, count }) => [key, count]));
}

const gradient = (t: Tensor): Tensor => t.grad as Tensor;

describe('the gradient of an embedding', () => {
  /** An embedding whose weight is also the output layer, as language models tie them. */
  const tied = (weight: Tensor, ids: Tensor): Tensor => {
    const h = nn.functional.embedding(ids, weight).tanh();
    return nn.functional.linear(h, weight).square().sum();
  };
  const ids = tensor([0, 3, 3, 1], { dtype: int64 });

  it('of a tied weight is the sum of both uses', () => {
    manualSeed(2);
    const weight = randn([5, 4], { dtype: float64 }).requiresGrad_();
    assert.ok(autograd.gradcheck((w: Tensor) => tied(w, ids), [weight]));
    const [apart] = autograd.grad(tied(weight, ids), [weight], { createGraph: true });
    const [sum] = autograd.grad(tied(weight, ids), [weight]);
    assert.ok(sum?.allclose(apart as Tensor, { rtol: 1e-12, atol: 1e-12 }));
  });

  it('of a tied weight is added in place, without zeros, a copy and a sum', () => {
    const weight = randn([5, 4]).requiresGrad_();
    const counts = opsOfBackward(tied(weight, ids));
    for (const op of ['zeros', 'fill', 'add', 'copy'])
      assert.equal(counts.get(op), undefined, [...counts].join(' '));
    assert.equal(counts.get('indexAdd_') ?? counts.get('indexAdd'), 1, [...counts].join(' '));
  });

  it('leaves a gradient alone that another tensor has, too', () => {
    const [weight, other] = [randn([5, 4]).requiresGrad_(), randn([5, 4]).requiresGrad_()];
    const loss = nn.functional.embedding(ids, weight).sum().add(weight.add(other).mul(2).sum());
    loss.backward();
    assert.deepEqual(gradient(other).flatten().tolist(), new Array(20).fill(2));
    const rows = gradient(weight).sum(1).tolist();
    assert.deepEqual(rows, [12, 12, 8, 16, 8]);
  });

  it('leaves a gradient alone that a hook has kept', () => {
    const weight = randn([5, 4]).requiresGrad_();
    const view = weight.mul(1);
    const kept: Tensor[] = [];
    const used = view.mul(3);
    used.registerHook((g) => void kept.push(g));
    const loss = nn.functional.embedding(ids, view).sum().add(used.sum());
    loss.backward();
    assert.deepEqual((kept[0] as Tensor).flatten().tolist(), new Array(20).fill(1));
    assert.deepEqual(gradient(weight).sum(1).tolist(), [16, 16, 12, 20, 12]);
  });

  it('holds no second gradient of the table while it is made', () => {
    const bytes = 2 ** 22;
    const weight = zeros([bytes / 16, 4]).requiresGrad_();
    const loss = nn.functional.embedding(ids, weight).sum();
    memory.collect();
    memory.resetPeak('cpu');
    const before = memory.stats('cpu').allocatedBytes;
    loss.backward();
    assert.ok(memory.stats('cpu').peakAllocatedBytes <= before + 1.1 * bytes);
  });
});
