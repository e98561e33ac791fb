/** A captured `autograd.Function` runs anew at every call of the graph. */
import assert from 'node:assert/strict';
import {
  autograd,
  CompileError,
  compile,
  nn,
  rand,
  type Tensor,
  tensor,
} from '../../../lib/index.js';
import { assertSameAsEager } from '../same-as-eager.js';

type Context = autograd.FunctionContext;
const pair = (call: number): Tensor[] =>
  [1, 2].map((k) => tensor([k + call, -k * call], { requiresGrad: true }));

let forwards = 0;

/** Scales and saves; its gradient is not that of its forward. */
class Scaled extends autograd.Function {
  static forward(ctx: Context, x: Tensor, factor: number, names: { kind: string }): Tensor {
    forwards++;
    ctx.saveForBackward(x);
    ctx.factor = names.kind === 'twice' ? 2 * factor : factor;
    return x.mul(ctx.factor as number).add(tensor([1, 2]));
  }
  static backward(ctx: Context, g: Tensor): (Tensor | null)[] {
    const [x] = ctx.savedTensors;
    return [g.mul(x as Tensor).mul(100), null, null];
  }
}

class Split extends autograd.Function {
  static forward(ctx: Context, x: Tensor, y: Tensor): Tensor[] {
    const sign = x.gt(0).to('float32');
    ctx.markNonDifferentiable(sign);
    return [x.mul(y), sign, x];
  }
  static backward(_: Context, g: Tensor, _sign: Tensor, gx: Tensor): Tensor[] {
    return [g.mul(3).add(gx), g.mul(5)];
  }
}

class DoubledInPlace extends autograd.Function {
  static forward(ctx: Context, x: Tensor): Tensor {
    ctx.markDirty(x);
    return x.mul_(2);
  }
  static backward(_: Context, g: Tensor): Tensor {
    return g.mul(7);
  }
}

describe('a captured autograd.Function', () => {
  it('computes what it computes eagerly, with arguments that are no tensors', () => {
    assertSameAsEager(() => (w) => Scaled.apply(w.mul(2), 3, { kind: 'twice' }).mul(w));
  });

  it('runs its forward once at every call, and once more at the capture', () => {
    const compiled = compile((w: Tensor) => Scaled.apply(w, 3, { kind: 'once' }), {
      backend: 'eager',
      fullgraph: true,
    });
    forwards = 0;
    for (let call = 0; call < 3; call++) compiled(tensor([1, 2], { requiresGrad: true }));
    assert.equal(forwards, 4);
  });

  it('has several outputs, of which some have no gradient and one is an input', () => {
    assertSameAsEager(
      () => (x, y) => {
        const [product, sign, same] = Split.apply(x, y) as [Tensor, Tensor, Tensor];
        return [product.mul(sign), sign, same.mul(2), same];
      },
      { inputs: pair },
    );
  });

  it('changes its input in place and returns it', () => {
    assertSameAsEager(() => (w) => {
      const h = w.mul(3);
      const same = DoubledInPlace.apply(h);
      assert.equal(same, h);
      return [h.mul(w), h];
    });
  });

  it('uses tensors from outside, changes them, and draws random numbers', () => {
    assertSameAsEager(() => {
      const total = tensor([0, 0]);
      class Added extends autograd.Function {
        static forward(_: Context, x: Tensor): Tensor {
          total.add_(x.abs());
          const draw = rand([2]);
          return x.add(total).add(draw.sub(draw));
        }
        static backward(_: Context, g: Tensor): Tensor {
          return g.mul(total);
        }
      }
      return {
        fn: (w) => Added.apply(w).mul(total),
        state: () => [total.tolist(), total._version],
      };
    });
  });

  it('is inlined where no gradient is needed', () => {
    assertSameAsEager(() => (w) => Scaled.apply(w.detach(), 3, { kind: 'once' }).mul(w));
  });

  it('is refused if it reads a value, or if its error is caught', () => {
    class Reads extends autograd.Function {
      static forward(_: Context, x: Tensor): Tensor {
        return x.mul(x.sum().item() as number);
      }
      static backward(_: Context, g: Tensor): Tensor {
        return g;
      }
    }
    class Fails extends autograd.Function {
      static forward(_: Context, x: Tensor): Tensor {
        x.data.add_(1);
        throw new RangeError('no forward');
      }
    }
    const w = (): Tensor => tensor([1, 2], { requiresGrad: true });
    const caught = (x: Tensor): Tensor => {
      try {
        return Fails.apply(x);
      } catch {
        return x.mul(2);
      }
    };
    assert.throws(
      () => compile((x: Tensor) => Reads.apply(x), { fullgraph: true })(w()),
      CompileError,
    );
    assert.throws(() => compile((x: Tensor) => Fails.apply(x))(w()), RangeError);
    assert.throws(() => compile(caught, { fullgraph: true })(w()), CompileError);
    assert.deepEqual(compile(caught)(w()).tolist(), [4, 6]);
  });

  it('is refused if an argument hides a tensor that changes with the calls', () => {
    class Hidden extends autograd.Function {
      static forward(_: Context, x: Tensor, boxes: Set<Tensor>): Tensor {
        return x.mul([...boxes][0] as Tensor);
      }
      static backward(_: Context, g: Tensor): (Tensor | null)[] {
        return [g, null];
      }
    }
    const fn = (x: Tensor): Tensor => Hidden.apply(x, new Set([x.detach()]));
    assert.throws(
      () => compile(fn, { fullgraph: true })(tensor([1, 2], { requiresGrad: true })),
      /inside a Set/,
    );
  });

  it('names the function when it returns other results than at the capture', () => {
    let many = 2;
    class Changing extends autograd.Function {
      static forward(_: Context, x: Tensor): Tensor[] {
        return Array.from({ length: many }, () => x.mul(2));
      }
      static backward(_: Context, ...g: Tensor[]): Tensor {
        return g[0] as Tensor;
      }
    }
    const compiled = compile((x: Tensor) => Changing.apply(x), {
      backend: 'eager',
      fullgraph: true,
    });
    compiled(tensor([1, 2], { requiresGrad: true }));
    many = 3;
    assert.throws(() => compiled(tensor([1, 2], { requiresGrad: true })), /Changing returned 3/);
  });
});

describe('backward hooks of captured modules', () => {
  it('run at every backward pass', () => {
    assertSameAsEager(() => {
      const model = new nn.Linear(2, 2);
      model.weight.data.copy_(
        tensor([
          [1, 2],
          [3, 4],
        ]),
      );
      model.bias?.data.fill_(0.5);
      const seen: unknown[] = [];
      model.registerFullBackwardPreHook((_m, [g]) => [g?.mul(2) ?? null]);
      model.registerFullBackwardHook((_m, [gradInput], [gradOutput]) => {
        seen.push(gradInput?.tolist(), gradOutput?.tolist());
        return [gradInput?.mul(10) ?? null];
      });
      return {
        fn: (w) => model(w.mul(2)).mul(3),
        state: () => [seen, model.weight.grad?.tolist()],
      };
    });
  });
});
