/** Backward passes that functions run in lazy segments. */
import assert from 'node:assert/strict';
import {
  arange,
  autograd,
  compile,
  enableGrad,
  float64,
  graphBreak,
  type Tensor,
  tensor,
} from '../../../lib/index.js';
import { backends } from '../backends.js';

const programs: Record<string, () => Tensor | null> = {
  'in-place changes of views of transposed memory'() {
    const w = tensor([1, 2, 3, 4, 5, 6], { dtype: float64 }).reshape(2, 3).requiresGrad_();
    const base = w.t().clone(); // keeps the strides of w.t()
    base.select(0, 1).mul_(10);
    base
      .mul(arange(6, { dtype: float64 }).reshape(3, 2))
      .sum()
      .backward();
    return w.grad;
  },
  'a nested pass in a hook that unpacks'() {
    const w = tensor([1, 2], { dtype: float64, requiresGrad: true });
    const inner = tensor([1, 2], { dtype: float64, requiresGrad: true });
    const y = autograd.savedTensorsHooks(
      (t) => t,
      (t) => {
        inner.grad = null;
        enableGrad(() => inner.mul((t as Tensor).detach()).sum()).backward();
        return inner.grad as unknown as Tensor;
      },
      () => w.mul(w),
    );
    y.sum().backward();
    return w.grad;
  },
};

/** Reads its gradient, and uses it once more in an op that has not run when it hands it over. */
class Doubled extends autograd.Function {
  static override keepsNoGrads = true;
  static forward(_ctx: autograd.FunctionContext, x: Tensor): Tensor {
    return x.mul(2);
  }
  static backward(_ctx: autograd.FunctionContext, g: Tensor): Tensor {
    const grad = g.mul(2);
    assert.deepEqual(grad.tolist(), [2, 2]);
    grad.add(1);
    return grad;
  }
}

describe('a lazy segment', () => {
  it('leaves a gradient that it reads to those that own it', () => {
    const program = (): unknown => {
      const x = tensor([1, 2], { requiresGrad: true });
      Doubled.apply(x).sum().backward();
      const grad = x.grad as Tensor;
      x.grad = null;
      return grad.tolist();
    };
    for (const backend of backends) {
      const compiled = compile(() => (graphBreak(), program()), { backend });
      for (let call = 0; call < 2; call++) assert.deepEqual(compiled(), program());
    }
  });

  for (const [name, program] of Object.entries(programs))
    for (const backend of backends)
      it(`has the gradients of ${name}, with ${backend}`, () => {
        const compiled = compile(() => (graphBreak(), program()), { backend });
        for (let call = 0; call < 2; call++)
          assert.deepEqual(compiled()?.tolist(), program()?.tolist());
      });
});
