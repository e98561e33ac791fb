/** An `autograd.Function` that changes a view in place changes the history of the view's base. */
import assert from 'node:assert/strict';
import { autograd, type Tensor, tensor } from '../../lib/index.js';

type Context = autograd.FunctionContext;

class Doubled extends autograd.Function {
  static forward(ctx: Context, x: Tensor): Tensor {
    ctx.markDirty(x);
    return x.mul_(2);
  }
  static backward(_: Context, g: Tensor): Tensor {
    return g.mul(2);
  }
}

class DoubledBeside extends autograd.Function {
  static forward(ctx: Context, x: Tensor): Tensor[] {
    ctx.markDirty(x);
    return [x.mul_(2), x.add(1)];
  }
  static backward(_: Context, g: Tensor, other: Tensor): Tensor {
    return g.mul(2).add(other);
  }
}

const leaf = (): Tensor =>
  tensor(
    [
      [1, 2],
      [3, 4],
    ],
    { requiresGrad: true },
  );

describe('a function that marks a view dirty', () => {
  it('passes the gradient of the base through its backward', () => {
    const w = leaf();
    const base = w.mul(1);
    const row = base.select(0, 1);
    assert.equal(Doubled.apply(row), row);
    base.mul(base).sum().backward();
    assert.deepEqual(w.grad?.tolist(), [
      [2, 4],
      [24, 32],
    ]);
  });

  it('passes the gradient of the view, too', () => {
    const w = leaf();
    const row = w.mul(1).t().select(0, 1);
    Doubled.apply(row).sum().backward();
    assert.deepEqual(w.grad?.tolist(), [
      [0, 2],
      [0, 2],
    ]);
  });

  it('is refused for a view of a leaf, and with several results', () => {
    assert.throws(() => Doubled.apply(leaf().select(0, 1)), /a view of a leaf tensor/);
    assert.throws(() => DoubledBeside.apply(leaf().mul(1).select(0, 1)), /2 results cannot change/);
  });
});
