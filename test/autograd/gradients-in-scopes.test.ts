/**
 * Gradients that user code sees inside a scope belong to the scope: they live until its end, or as
 * long as the program keeps them.
 */
import assert from 'node:assert/strict';
import {
  autograd,
  FreedError,
  keep,
  memory,
  nn,
  ones,
  scope,
  type Tensor,
  tensor,
} from '../../lib/index.js';

const leaf = (): Tensor => tensor([1, 2], { requiresGrad: true });

class Watched extends autograd.Function {
  static seen: Tensor;
  static forward(_: autograd.FunctionContext, x: Tensor): Tensor {
    return x.clone();
  }
  static backward(_: autograd.FunctionContext, grad: Tensor): Tensor {
    Watched.seen = grad;
    return grad;
  }
}

const ways: Record<string, (w: Tensor, see: (grad: Tensor) => void) => void> = {
  'by a hook on a tensor that is summed': (w, see) => {
    const h = w.mul(2);
    h.registerHook((grad) => see(grad));
    h.sum().backward();
  },
  'by a hook on a tensor that another op uses': (w, see) => {
    const h = w.mul(2);
    h.registerHook((grad) => see(grad));
    h.mul(3).sum().backward();
  },
  'by a hook on a leaf': (w, see) => {
    w.registerHook((grad) => see(grad));
    w.mul(3).sum().backward();
  },
  'by an autograd.Function': (w, see) => {
    Watched.apply(w).mul(3).sum().backward();
    see(Watched.seen);
  },
};

describe('a gradient inside a scope', () => {
  for (const [which, backward] of Object.entries(ways)) {
    it(`that is seen ${which} lives until the scope ends`, () => {
      let seen: Tensor | undefined;
      scope(() => {
        backward(leaf(), (grad) => {
          seen = grad;
        });
        assert.ok(Array.isArray(seen?.tolist()));
      });
      assert.throws(() => seen?.tolist(), FreedError);
    });

    it(`that is seen ${which} outlives the scope after keep()`, () => {
      let seen: Tensor | undefined;
      scope(() => {
        backward(leaf(), (grad) => {
          seen = keep(grad);
        });
      });
      assert.ok(Array.isArray(seen?.tolist()));
    });
  }

  const hooks: Record<string, (layer: nn.Linear) => void> = {
    'on parameters': (layer) => {
      for (const parameter of layer.parameters()) parameter.registerHook(() => {});
    },
    'on modules': (layer) => {
      layer.registerFullBackwardHook(() => {});
    },
  };
  for (const [which, register] of Object.entries(hooks)) {
    it(`that hooks ${which} see takes no memory after the scope ends`, () => {
      const layer = new nn.Linear(256, 256, { bias: false });
      register(layer);
      const input = ones([256, 256], { requiresGrad: true });
      const step = (): void =>
        scope(() => {
          layer(input).sum().backward();
          layer.zeroGrad();
          input.grad = null;
        });
      step();
      const before = memory.stats().allocatedBytes;
      for (let i = 0; i < 20; i++) step();
      assert.ok(
        memory.stats().allocatedBytes - before <= 2 * input.nbytes,
        `${(memory.stats().allocatedBytes - before) / input.nbytes} inputs more`,
      );
    });
  }
});
