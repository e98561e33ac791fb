/** Gradients of tensors of which several parts are used: see lib/autograd/held-gradients.ts. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  autograd,
  cat,
  float64,
  memory,
  ones,
  rand,
  randint,
  randn,
  type Tensor,
  zerosLike,
} from '../../lib/index.js';

/** The gradient by parts, one backward pass each, which nothing joins. */
function onePartAtATime(x: Tensor, parts: (x: Tensor) => Tensor[], weights: Tensor[]): Tensor {
  return parts(x).reduce((sum, _, i) => {
    const part = parts(x)[i] as Tensor;
    const [g] = autograd.grad(part.mul(weights[i] as Tensor).sum(), [x]);
    return sum.add(g as Tensor);
  }, zerosLike(x));
}

function check(x: Tensor, parts: (x: Tensor) => Tensor[]): void {
  const weights = parts(x.detach()).map((part) =>
    randint(-9, 9, [...part.shape], { dtype: float64 }),
  );
  const expected = onePartAtATime(x, parts, weights);
  const loss = parts(x)
    .map((part, i) => part.mul(weights[i] as Tensor).sum())
    .reduce((a, b) => a.add(b));
  const [seen] = autograd.grad(loss, [x]);
  assert.deepEqual(seen?.tolist(), expected.tolist());
}

const leaf = (shape: number[]): Tensor => randn(shape, { dtype: float64 }).requiresGrad_();

describe('the gradient of a tensor whose parts are used', () => {
  const uses: Readonly<Record<string, (x: Tensor) => Tensor[]>> = {
    'all of them': (x) => x.chunk(3, 1),
    'slices of a dim that falls away': (x) => x.unbind(0),
    'some of them': (x) => x.chunk(3, 1).slice(1),
    'in another order': (x) => x.chunk(3, 1).reverse(),
    'one twice': (x) => [...x.unbind(0), x.select(0, 1)],
    'parts that overlap': (x) => [x.narrow(1, 0, 4), x.narrow(1, 2, 4)],
    'parts of several dims': (x) => [x.narrow(1, 0, 3), x.narrow(0, 1, 2)],
    'every second element': (x) => [x.slice(1, 0, null, 2), x.slice(1, 1, null, 2)],
    'parts of both kinds': (x) => [x.narrow(1, 0, 3), x.select(1, 4)],
    'the whole beside a part': (x) => [x.narrow(1, 0, 3), x],
    'no elements of it': (x) => [x.narrow(1, 2, 0), x.narrow(1, 0, 3)],
    'parts of a permuted view': (x) => x.view([3, 2, 3]).permute([1, 2, 0]).unbind(1),
  };
  for (const [what, parts] of Object.entries(uses))
    it(`is the sum of those by parts: ${what}`, () => {
      check(leaf([3, 6]), parts);
      check(leaf([6, 3]).t(), (x) => parts(x));
    });

  it('is the sum of those by parts, of any parts', () => {
    const part = fc.record({ dim: fc.nat(1), start: fc.nat(3), length: fc.nat(2) });
    fc.assert(
      fc.property(fc.array(part, { minLength: 1, maxLength: 5 }), (list) => {
        check(leaf([5, 5]), (x) =>
          list.map(({ dim, start, length }) => x.narrow(dim, start, length)),
        );
      }),
    );
  });

  it('has hooks on the whole and on the parts', () => {
    const x = leaf([2, 4]);
    const y = x.mul(1);
    const seen: unknown[] = [];
    y.registerHook((g) => {
      seen.push(g.tolist());
      return g.mul(2);
    });
    const [a, b] = y.chunk(2, 1) as [Tensor, Tensor];
    a.registerHook((g) => g.mul(10));
    a.sum().add(b.sum()).backward();
    assert.deepEqual(seen, [
      [
        [10, 10, 1, 1],
        [10, 10, 1, 1],
      ],
    ]);
    assert.deepEqual(x.grad?.tolist(), [
      [20, 20, 2, 2],
      [20, 20, 2, 2],
    ]);
  });

  it('can be differentiated again', () => {
    const x = leaf([2, 4]);
    const [a, b] = x.chunk(2, 1) as [Tensor, Tensor];
    const [g] = autograd.grad(a.square().mul(b).sum(), [x], { createGraph: true });
    const [second] = autograd.grad((g as Tensor).sum(), [x]);
    const [u, v] = x.detach().chunk(2, 1) as [Tensor, Tensor];
    const expected = cat([v.mul(2).add(u.mul(2)), u.mul(2)], 1);
    assert.ok((second as Tensor).sub(expected).abs().sum().item<number>() < 1e-12);
  });

  it('is in memory as the tensor was, so that no layer copies it', () => {
    const qkv = rand([2, 5, 3 * 4]).requiresGrad_();
    const packed = qkv.mul(1);
    let strides: readonly number[] = [];
    const heads = packed.view([2, 5, 3, 2, 2]).permute([2, 0, 3, 1, 4]);
    heads.registerHook((g) => {
      strides = g.strides;
    });
    const [q, k, v] = heads.unbind(0) as [Tensor, Tensor, Tensor];
    q.mul(k).add(v).sum().backward();
    assert.deepEqual(strides, heads.strides);
  });

  it('takes the memory of one tensor of its size beside those of the parts', () => {
    const x = ones([8, 1000]).requiresGrad_();
    const run = (): void => {
      const y = x.mul(2);
      const parts = y.unbind(0);
      parts
        .reduce((a, b) => a.add(b))
        .sum()
        .backward();
      x.grad = null;
    };
    run();
    memory.collect();
    memory.resetPeak('cpu');
    const before = memory.stats('cpu').allocatedBytes;
    run();
    const { peakAllocatedBytes } = memory.stats('cpu');
    assert.ok(peakAllocatedBytes - before <= 4 * 8 * 4000, `${peakAllocatedBytes - before}`);
  });
});
