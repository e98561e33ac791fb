/** Plans on a GPU: the same results as the calls, in order with all streams. */
import assert from 'node:assert/strict';
import { dispatch } from '../../../lib/core/dispatch.js';
import { cuda, memory, nn, ones, randn, scope, type Tensor } from '../../../lib/index.js';
import { ownOps } from '../../every-op/differentiable.js';
import { skipWithoutCuda } from '../../skip.js';
import { assertSameAsSteps, copyOf, planOf } from './lowered.js';

/** Copies on the GPU. */
const onGpu = (inputs: readonly Tensor[]): Tensor[] => inputs.map((t) => copyOf(t).to('cuda'));

describe('a plan on a GPU', function () {
  this.timeout(120_000);
  before(function () {
    skipWithoutCuda(this);
  });

  for (const op of ownOps()) {
    const samples = op.samples();
    if (samples.length === 0 || op.compute !== null) continue;
    it(`has the results of the op for ${op.name}`, () => {
      for (const { inputs, params } of samples) {
        const tensors = inputs.filter((t) => t.storage !== null);
        assertSameAsSteps(
          (...given) => {
            let next = 0;
            const operands = inputs.map((t) =>
              t.storage === null ? t : (given[next++] as Tensor),
            );
            return dispatch(op, operands, params);
          },
          tensors,
          onGpu,
        );
      }
    });
  }

  it('runs a model as one segment', () => {
    const model = new nn.Sequential(
      new nn.Linear(64, 256),
      new nn.GELU(),
      new nn.LayerNorm(256),
      new nn.Dropout(0.5),
      new nn.Linear(256, 64),
    ).to('cuda');
    const plan = assertSameAsSteps((x) => [model(x)], [randn([32, 64])], onGpu);
    assert.deepEqual([plan.summary.segments, plan.summary.single], [1, 0]);
  });

  it('splits where values move between devices', () => {
    const plan = assertSameAsSteps(
      (x) => [x.add(1).to('cpu').mul(2).to('cuda').sub(1)],
      [randn([8])],
      onGpu,
    );
    assert.deepEqual([plan.summary.segments, plan.summary.single], [3, 2]);
  });

  it('comes behind what other streams write, and before what they read', () => {
    const n = 1 << 22;
    const plan = planOf((x) => [x.add(1).add(1).add(1)], [ones([n], { device: 'cuda' })]);
    const side = new cuda.Stream();
    for (let i = 0; i < 20; i++) {
      const x = ones([n], { device: 'cuda' });
      for (let k = 0; k < 10; k++) x.mul_(1).add_(i);
      const [y] = cuda.stream(side, () => plan.run([x])) as [Tensor];
      const z = y.mul(2);
      x.fill_(0);
      assert.equal(z.narrow(0, n - 1, 1).item(), 2 * (1 + 10 * i + 3));
      for (const t of [x, y, z]) t.dispose();
    }
  });

  it('leaves the allocated bytes as they were', () => {
    const plan = planOf((x) => [x.matmul(x).relu().matmul(x)], [randn([64, 64]).to('cuda')]);
    const x = randn([64, 64]).to('cuda');
    for (let i = 0; i < 10; i++) scope(() => void plan.run([x]));
    memory.collect();
    const before = memory.stats('cuda').allocatedBytes;
    for (let i = 0; i < 5000; i++) scope(() => void plan.run([x]));
    memory.collect();
    assert.equal(memory.stats('cuda').allocatedBytes, before);
  });
});
