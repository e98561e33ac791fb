/** `static keepsNoGrads` of an autograd.Function: who owns the gradients that it passes. */
import assert from 'node:assert/strict';
import { autograd, memory, nn, ones, scope, type Tensor, zeros } from '../../lib/index.js';

/** Two parameters in one buffer, whose gradients are views of one buffer, too. */
class Split extends autograd.Function {
  static override keepsNoGrads = true;
  static forward(ctx: autograd.FunctionContext, a: Tensor, b: Tensor): Tensor[] {
    ctx.setMaterializeGrads(false);
    return [a.detach().clone(), b.detach().clone()];
  }
  static backward(_ctx: autograd.FunctionContext, ga: Tensor, gb: Tensor): Tensor[] {
    const [m, n] = [ga.numel(), gb.numel()];
    const flat = zeros([m + n]);
    const views = [flat.narrow(0, 0, m), flat.narrow(0, m, n)] as const;
    views[0].copy_(ga);
    views[1].copy_(gb);
    return [...views];
  }
}

describe('gradients of a Function that keeps none', () => {
  it('become .grad without a copy, as views of one buffer', () => {
    const [a, b] = [new nn.Parameter(ones([2])), new nn.Parameter(ones([3]))];
    const [x, y] = Split.apply(a, b) as [Tensor, Tensor];
    x.sum().add(y.mul(2).sum()).backward();
    assert.deepEqual(
      [a.grad?.tolist(), b.grad?.tolist()],
      [
        [1, 1],
        [2, 2, 2],
      ],
    );
    assert.equal(a.grad?.untypedStorage(), b.grad?.untypedStorage());
  });

  it('are freed when the last of them is set to null, and not before', () => {
    const size = 1 << 16;
    const [a, b] = [new nn.Parameter(ones([size])), new nn.Parameter(ones([size]))];
    memory.collect();
    const before = memory.stats().allocatedBytes;
    scope(() => {
      const [x, y] = Split.apply(a, b) as [Tensor, Tensor];
      x.sum().add(y.sum()).backward();
    });
    const held = (): number => memory.stats().allocatedBytes - before;
    assert.equal(held(), 8 * size);
    a.grad = null;
    assert.equal(held(), 8 * size);
    b.grad = null;
    assert.equal(held(), 0);
  });

  it('accumulate over passes', () => {
    const [a, b] = [new nn.Parameter(ones([2])), new nn.Parameter(ones([3]))];
    for (let pass = 0; pass < 3; pass++) {
      const [x, y] = Split.apply(a, b) as [Tensor, Tensor];
      x.sum().add(y.sum()).backward();
    }
    assert.deepEqual(
      [a.grad?.tolist(), b.grad?.tolist()],
      [
        [3, 3],
        [3, 3, 3],
      ],
    );
  });

  it('are copied where one of them goes to two parameters', () => {
    const [a, b] = [new nn.Parameter(ones([2])), new nn.Parameter(ones([2]))];
    const c = new nn.Parameter(ones([3]));
    const [x, y] = Split.apply(a.add(b), c) as [Tensor, Tensor];
    x.sum().add(y.sum()).backward();
    a.grad?.mul_(7);
    assert.deepEqual(
      [a.grad?.tolist(), b.grad?.tolist()],
      [
        [7, 7],
        [1, 1],
      ],
    );
  });
});
