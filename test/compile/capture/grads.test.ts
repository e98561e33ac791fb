/** A captured function assigns gradients at every run. */
import assert from 'node:assert/strict';
import { CompileError, compile, nn, ones, optim, type Tensor, tensor } from '../../../lib/index.js';
import { assertSameAsEager, type Program } from '../same-as-eager.js';

const withGrad = (call: number): Tensor[] => {
  const w = tensor([1 + call, 2], { requiresGrad: true });
  w.grad = tensor([10, 20 * call]);
  return [w];
};

describe('assigning .grad in a captured function', () => {
  it('gives an argument the gradient that the run computed', () => {
    assertSameAsEager(
      () => (w) => {
        w.grad = w.detach().mul(3);
        return w.grad.add(1);
      },
      { backward: false },
    );
  });

  it('replaces, extends and removes the gradient that an argument has', () => {
    for (const fn of [
      (w: Tensor) => {
        w.grad = (w.grad as Tensor).mul(w.detach());
        return w.mul(2);
      },
      (w: Tensor) => {
        const before = w.grad as Tensor;
        w.grad = null;
        assert.equal(w.grad, null);
        return [w.mul(before), before];
      },
      (w: Tensor) => {
        w.grad = null;
        w.grad = w.detach().neg();
        w.grad.mul_(2);
        return w.mul(2);
      },
    ])
      assertSameAsEager(() => fn, { inputs: withGrad });
  });

  it('reads the gradient that a parameter has at each call', () => {
    for (const backend of ['eager', 'aot_eager'] as const) {
      const model = new nn.Linear(2, 2, { bias: false });
      const halve = (m: typeof model): void => {
        m.weight.grad = (m.weight.grad as Tensor).mul(0.5);
      };
      const compiled = compile(halve, { backend, fullgraph: true });
      for (const scale of [2, 4, 6]) {
        model.weight.grad = ones([2, 2]).mul(scale);
        compiled(model);
        assert.deepEqual(
          model.weight.grad.tolist(),
          ones([2, 2])
            .mul(scale / 2)
            .tolist(),
        );
      }
    }
  });

  it('accumulates into the assigned gradient in later backward passes', () => {
    assertSameAsEager(() => (w) => {
      w.grad = w.detach().clone();
      return w.mul(w);
    });
  });

  it('sets gradients of parameters to null, or to zero', () => {
    const zeroing = (setToNone: boolean) => (): Program => {
      const model = new nn.Linear(2, 2);
      model.weight.data.fill_(0.5);
      model.bias?.data.fill_(1);
      const optimizer = new optim.SGD(model.parameters(), { lr: 0.1 });
      model(ones([2]))
        .sum()
        .backward();
      return {
        fn: (w) => {
          if (w.shape.length > 0) optimizer.zeroGrad(setToNone);
          return model(w);
        },
        state: () => [...model.parameters()].map((p) => p.grad?.tolist() ?? null),
      };
    };
    assertSameAsEager(zeroing(true));
    assertSameAsEager(zeroing(false));
  });

  it('clips gradients', () => {
    assertSameAsEager(
      () => (w) => {
        nn.utils.clipGradNorm_([w], 0.5);
        return (w.grad as Tensor).clone();
      },
      { inputs: withGrad, backward: false },
    );
  });

  it('is refused as eagerly, if the gradient does not fit', () => {
    const fn = (w: Tensor): Tensor => {
      w.grad = ones([3]);
      return w;
    };
    assert.throws(() => compile(fn, { fullgraph: true })(ones([2])), /grad: expected/);
  });
});

describe('a step of an optimizer in a compiled function', () => {
  it('is refused with fullgraph, and runs uncompiled without it', () => {
    const train = (compiled: boolean): unknown => {
      const w = tensor([1, 2], { requiresGrad: true });
      const optimizer = new optim.Adam([w], { lr: 0.1 });
      const step = (x: Tensor): Tensor => {
        optimizer.step();
        return x.add(w.detach());
      };
      const run = compiled ? compile(step) : step;
      return [1, 2, 3].map((k) => {
        w.grad = tensor([k, -k]);
        return [run(ones([2])).tolist(), w.tolist()];
      });
    };
    assert.deepEqual(train(true), train(false));
    const idle = new optim.SGD([tensor([1], { requiresGrad: true })], { lr: 0.1 });
    assert.throws(
      () => compile(() => idle.step(), { fullgraph: true })(),
      (error: Error) => error instanceof CompileError && /step\(\) of SGD/.test(error.message),
    );
  });
});
