/** Results on one memory are views of each other, which the program may change in place. */
import assert from 'node:assert/strict';
import { aotAutograd, type CompileBackend } from '../../../lib/compile/index.js';
import {
  autograd,
  compile,
  InPlaceError,
  manualSeed,
  noGrad,
  rand,
  type Tensor,
} from '../../../lib/index.js';
import { assertSame, list } from './observed-results.js';

type Fn = (x: Tensor, w: Tensor) => Tensor[];
type Backend = 'aot_eager' | 'aot_eager_decomp_partition' | CompileBackend;

const functions: Record<string, Fn> = {
  'a tensor and a view of it': (x, w) => {
    const a = x.mul(w);
    return [a, a.view([-1])];
  },
  'a view alone': (x, w) => [x.mul(w).view([-1])],
  'a part alone, and another result': (x, w) => [x.matmul(w).asStrided([3], [2], 1), w.sin()],
  'a view before its base': (x, w) => {
    const a = x.mul(w);
    return [a.view([-1]), a, a.t()];
  },
  chunks: (x, w) => x.mul(w).chunk(2, 0),
  'parts of parts': (x, w) => {
    const [first, last] = x.matmul(w).split(2, 1) as [Tensor, Tensor];
    return [first.select(0, 1), last.unsqueeze(0), first];
  },
  'views that were changed in the function': (x, w) => {
    const a = x.mul(w);
    const b = a.view([-1]);
    b.narrow(0, 0, 3).mul_(2);
    a.add_(w);
    return [b, a];
  },
  'a result of several outputs': (x, w) => {
    const { values, indices } = x.mul(w).sort();
    return [values, values.narrow(1, 0, 1), indices, indices.t()];
  },
  'the same view twice, and others': (x, w) => {
    const a = x.sin();
    const v = a.view([-1]);
    return [v, v, a, w.sin()];
  },
  'views without gradients': (x, w) =>
    noGrad(() => {
      const a = x.mul(w);
      return [a, a.view([-1])];
    }),
  'a detached view': (x, w) => {
    const a = x.mul(w);
    return [a, a.detach(), a.view([-1])];
  },
};

/** What the program sees that changes each result in place, and goes backward through the others. */
function changed(fn: Fn, which: number): unknown {
  manualSeed(1);
  const [x, w] = [rand([4, 4]).requiresGrad_(), rand([4, 4]).requiresGrad_()];
  const results = fn(x, w);
  const t = results[which] as Tensor;
  const outcome = attempt(() => (t.dtype.isFloatingPoint ? t.mul_(3) : t.add_(1)));
  const floats = results.filter((each) => each.requiresGrad);
  const loss = floats.map((each, i) =>
    each
      .sin()
      .sum()
      .mul(i + 1),
  );
  const backward = attempt(() => loss.reduce((a, b) => a.add(b)).backward());
  return {
    outcome,
    backward: loss.length === 0 || backward,
    values: results.map((each) => each.tolist()),
    bases: results.map((each) => each._base !== null && results.indexOf(each._base)),
    gradients: [x.grad?.tolist(), w.grad?.tolist()],
    tracked: results.map((each) => [each.requiresGrad, each.isLeaf]),
  };
}

function attempt(fn: () => unknown): string {
  try {
    fn();
    return 'done';
  } catch (error) {
    return (error as Error).constructor.name;
  }
}

const backends: Record<string, Backend> = {
  aot_eager: 'aot_eager',
  aot_eager_decomp_partition: 'aot_eager_decomp_partition',
  'graphs op by op': aotAutograd({ fwCompiler: (module) => module.forward.bind(module) }),
};

describe('a view that a compiled function returns alone', () => {
  const cube = class extends autograd.Function {
    static forward(ctx: autograd.FunctionContext, x: Tensor): Tensor {
      ctx.saveForBackward(x);
      return x.pow(3);
    }
    static backward(ctx: autograd.FunctionContext, g: Tensor): Tensor[] {
      return [g.mul((ctx.savedTensors[0] as Tensor).square()).mul(3)];
    }
  };
  const programs: Record<string, Fn> = {
    'of all elements': (x, w) => [x.mul(w).view([-1, 1])],
    'of some elements': (x, w) => [x.mul(w).asStrided([1], [1], 1)],
    'of what follows from an autograd.Function': (x) => [cube.apply(x).mul(2).narrow(0, 0, 1)],
  };
  const changes: Record<string, (t: Tensor) => unknown> = {
    nothing: () => null,
    'its values': (t) => t.mul_(3),
    'its values without a gradient': (t) => noGrad(() => t.mul_(3)),
    'the values of its base': (t) => t._base?.mul_(3),
  };
  for (const [name, fn] of Object.entries(programs))
    it(`keeps and drops hooks and gradients as an uncompiled one: ${name}`, () => {
      for (const change of Object.values(changes))
        assertSame(fn as (...args: Tensor[]) => Tensor[], ([view]) => {
          const t = view as Tensor;
          const seen: unknown[] = [];
          t.registerHook((g) => {
            seen.push(list(g));
            return g.mul(2);
          });
          t.retainGrad();
          change(t);
          t.mul(t.detach()).sum().backward();
          return [seen, list(t.grad), list(t._base)];
        });
    });
});

describe('results of one memory of a compiled function', () => {
  for (const [title, backend] of Object.entries(backends))
    for (const [name, fn] of Object.entries(functions))
      it(`change in place as uncompiled ones: ${name} (${title})`, () => {
        const compiled = compile(fn, { backend, fullgraph: true });
        for (let which = 0; which < fn(rand([4, 4]), rand([4, 4])).length; which++)
          for (let run = 0; run < 2; run++)
            assert.deepEqual(changed(compiled, which), changed(fn, which));
      });

  it('raise the error of uncompiled code where backward needs what was changed', () => {
    const fn: Fn = (x, w) => {
      const a = x.mul(w);
      const v = a.view([-1]);
      return [a, v, v.exp().mul(v)];
    };
    for (const backend of ['aot_eager', 'eager'] as const) {
      const compiled = compile(fn, { backend, fullgraph: true });
      for (const which of [0, 1])
        for (const run of [fn, compiled, compiled]) {
          const results = run(rand([2, 2]).requiresGrad_(), rand([2, 2]).requiresGrad_());
          (results[which] as Tensor).add_(1);
          assert.throws(() => (results[2] as Tensor).sum().backward(), InPlaceError);
        }
    }
  });
});
