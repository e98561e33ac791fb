/** Backward passes that functions run in lazy segments. */
import assert from 'node:assert/strict';
import {
  arange,
  autograd,
  compile,
  enableGrad,
  float64,
  graphBreak,
  memory,
  ones,
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

/** Reads a value in backward, so that a segment ends. */
class Read extends autograd.Function {
  static override keepsNoGrads = true;
  static forward(ctx: autograd.FunctionContext, x: Tensor): Tensor {
    ctx.saveForBackward(x);
    return x.mul(1);
  }
  static backward(ctx: autograd.FunctionContext, g: Tensor): Tensor {
    ctx.savedTensors[0]?.select(0, 0).item();
    return g.mul(1);
  }
}

describe('a lazy segment', () => {
  it('keeps no gradients that backward has used', () => {
    const x = ones([1000], { requiresGrad: true });
    const program = (): number => {
      x.grad = null;
      let h: Tensor = x;
      for (let i = 0; i < 16; i++) h = Read.apply(h).sin();
      const loss = h.sum();
      memory.collect();
      const before = memory.stats().allocatedBytes;
      memory.resetPeak();
      loss.backward();
      return (memory.stats().peakAllocatedBytes - before) / x.nbytes;
    };
    const most = program();
    for (const backend of backends) {
      const compiled = compile(() => (graphBreak(), program()), { backend });
      for (let call = 0; call < 2; call++) {
        const peak = compiled();
        assert.ok(peak < most + 2, `${peak} gradients with ${backend}, ${most} uncompiled`);
      }
    }
  });

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
