/** Leaves that a captured function makes are made anew at every run. */
import assert from 'node:assert/strict';
import { CompileError, compile, nn, type Tensor, tensor } from '../../../lib/index.js';
import { assertSameAsEager } from '../same-as-eager.js';

const plain = (call: number): Tensor[] => [tensor([1.5 + call, -2 * call - 1])];

describe('a leaf that a captured function makes', () => {
  it('requires a gradient after requiresGrad_ on a detached tensor', () => {
    assertSameAsEager(() => (w) => {
      const inner = w.mul(2).detach().requiresGrad_();
      return [inner.mul(w).sin(), inner];
    });
    assertSameAsEager(() => (w) => {
      const inner = w.data.requiresGrad_();
      return [inner.mul(w), inner];
    });
  });

  it('is a written or random tensor with the option requiresGrad', () => {
    assertSameAsEager(() => (w) => {
      const made = tensor([3, 4], { requiresGrad: true });
      return [made.mul(w), made];
    });
  });

  it('is an argument that starts, or stops, requiring a gradient', () => {
    assertSameAsEager(() => (x) => [x.requiresGrad_().mul(x), x], { inputs: plain });
    assertSameAsEager(() => (w) => [w.mul(w), w.requiresGrad_(false)], { backward: false });
  });

  it('is a tensor from outside, whose next call finds it so', () => {
    assertSameAsEager(
      () => {
        const outer = tensor([2, 3]);
        return {
          fn: (w) => outer.requiresGrad_().mul(w),
          state: () => [outer.requiresGrad, outer.grad?.tolist() ?? null],
        };
      },
      { frames: 2 },
    );
  });

  it('is refused as eagerly, if it is no floating point tensor', () => {
    const fn = (w: Tensor): Tensor => w.detach().to('int64').requiresGrad_();
    assert.throws(() => fn(tensor([1, 2])), /floating point/);
    assert.throws(() => compile(fn, { fullgraph: true })(tensor([1, 2])), /floating point/);
  });
});

describe('a Parameter that a captured function makes', () => {
  for (const requiresGrad of [true, false]) {
    it(`is a leaf on the memory of an argument, requiresGrad ${requiresGrad}`, () => {
      assertSameAsEager(
        () => (x) => {
          const p = new nn.Parameter(x, requiresGrad);
          return [p.sin(), p];
        },
        { inputs: plain },
      );
    });

    it(`is a leaf on computed memory, requiresGrad ${requiresGrad}`, () => {
      assertSameAsEager(
        () => (x) => {
          const p = new nn.Parameter(x.add(123), requiresGrad);
          return [p.sin(), p, x];
        },
        { inputs: plain },
      );
    });
  }

  it('shares values and versions with its data', () => {
    const compiled = compile((x: Tensor) => new nn.Parameter(x), { fullgraph: true });
    for (let call = 0; call < 3; call++) {
      const x = tensor([1, 2]);
      const p = compiled(x);
      assert.ok(p instanceof nn.Parameter);
      x.add_(1);
      assert.deepEqual([p.tolist(), p._version], [[2, 3], 1]);
    }
  });

  it('is made from a tensor that the function closes over, and used in a module call', () => {
    assertSameAsEager(() => {
      const data = tensor([[1, 2]]);
      return {
        fn: (w) => {
          const p = new nn.Parameter(data);
          return [nn.functional.linear(w, p), p];
        },
        state: () => [data.tolist(), data.requiresGrad, data._version],
      };
    });
  });

  it('is refused if it is of a subclass', () => {
    class Named extends nn.Parameter {
      readonly title = 'named';
    }
    assert.throws(
      () => compile((x: Tensor) => new Named(x), { fullgraph: true })(tensor([1])),
      (error: Error) => error instanceof CompileError && /Named/.test(error.message),
    );
  });
});
