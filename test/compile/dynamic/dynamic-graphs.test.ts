/** What becomes of captures at several shapes: marks, reports, limits, backends of a program. */
import assert from 'node:assert/strict';
import { type CompiledGraph, type GraphModule, lint } from '../../../lib/compile/index.js';
import {
  ArgumentError,
  CompileError,
  compile,
  compiler,
  graphBreak,
  IndexError,
  library,
  nn,
  noGrad,
  ones,
  rand,
  type Tensor,
  zeros,
} from '../../../lib/index.js';
import { CompileCounter, CompileCounterWithBackend } from '../../../lib/testing/index.js';

const marked = (t: Tensor, ...dims: number[]): Tensor => {
  compiler.markDynamic(t, dims);
  return t;
};

describe('markDynamic', () => {
  it('makes the first graph one for all sizes of the dim, and of no other', () => {
    const counter = CompileCounter();
    const fn = compile((x: Tensor) => x.mul(2).view([x.numel()]), { backend: counter });
    for (const n of [3, 2, 5]) {
      const x = n === 3 ? marked(ones([n, 4]), 0) : ones([n, 4]);
      assert.deepEqual(fn(x).tolist(), new Array(4 * n).fill(2));
    }
    assert.equal(counter.frameCount, 1);
    assert.deepEqual(counter.graphs[0]?.symbols, [{ name: 's0', places: [{ input: 0, dim: 0 }] }]);
    fn(ones([3, 5]));
    assert.equal(counter.frameCount, 2);
  });

  it('counts if dynamic is false, as in PyTorch', () => {
    const counter = CompileCounter();
    const fn = compile((x: Tensor) => x.mul(2), { backend: counter, dynamic: false });
    fn(marked(ones([3, 4]), -1));
    fn(ones([3, 7]));
    assert.equal(counter.frameCount, 1);
    fn(ones([2, 7]));
    assert.equal(counter.frameCount, 2);
  });

  it('is an error where the graph can have one size only', () => {
    const linear = new nn.Linear(4, 2);
    const fn = compile((x: Tensor) => linear(x));
    assert.throws(
      () => fn(marked(ones([3, 4]), 1)),
      (error: Error) =>
        error instanceof CompileError &&
        /dim 1 of input 0 is marked as dynamic/.test(error.message),
    );
    const power = compile((x: Tensor) => x.mul((x.shape[0] as number) ** 0.3));
    assert.throws(() => power(marked(ones([3]), 0)), /does not follow from the sizes of inputs/);
  });

  it('leaves the sizes 0 and 1 to graphs of their own', () => {
    const fn = compile((x: Tensor) => x.mul(2));
    assert.deepEqual(fn(marked(ones([1, 2]), 0)).tolist(), [[2, 2]]);
    assert.deepEqual(fn(marked(ones([0, 2]), 0)).shape, [0, 2]);
  });

  it('refuses what is no tensor and dims that are not there', () => {
    assert.throws(() => compiler.markDynamic([1] as never, 0), ArgumentError);
    assert.throws(() => compiler.markDynamic(ones([2]), 1), IndexError);
  });
});

describe('a report on a dynamic graph', () => {
  it('shows the symbols and no recapture for shapes that the graph serves', () => {
    const explained = compiler.explain((x: Tensor) => x.sum(1).div(x.shape[1] as number));
    explained(ones([2, 3]));
    const second = explained(ones([4, 3]));
    assert.deepEqual(second.recaptures[0]?.because, [
      'argument 0 was float32[2, 3] on cpu and is float32[4, 3] on cpu',
    ]);
    const [, dynamic] = second.graphs;
    assert.deepEqual(dynamic?.symbols, ['s0 is size 0 of input 0, at least 2']);
    assert.match(String(dynamic?.graph), /%arg: float32\[s0, 3\] = input/);
    const third = explained(ones([5, 3]));
    assert.equal(third.graphs.length, 2);
    assert.equal(third.recaptures.length, 1);
    assert.match(
      String(third),
      /s0 is size 0 of input 0, at least 2\n {2}serves calls of the latest/,
    );
  });

  it('prints parameters and numbers in symbols', () => {
    const explained = compiler.explain((x: Tensor) =>
      x.view([(x.shape[0] as number) * 3]).mul(1 / (x.shape[0] as number)),
    );
    explained(ones([2, 3]));
    const text = String(explained(ones([5, 3])).graphs[1]?.graph);
    assert.match(text, /view\(%arg\) {2}\{ size: \[3\*s0\]/);
    assert.match(text, /mul\(%view, 1\/s0\)/);
  });

  it('says why a graph has fixed shapes though another call differs in sizes only', () => {
    const explained = compiler.explain((x: Tensor) =>
      (x.shape[0] as number) > 3 ? x.mul(2) : x.add(2),
    );
    explained(ones([2]));
    const { graphs, recaptures } = explained(ones([4]));
    assert.equal(graphs[0]?.specialised, null);
    assert.match(graphs[1]?.specialised ?? '', /call add.* is call mul/);
    assert.equal(recaptures.length, 1);
    assert.match(String(explained(ones([4]))), /has fixed shapes: call add/);
    const one = compiler.explain((x: Tensor) => x.mul(2));
    one(ones([2]));
    assert.match(
      one(ones([1])).graphs[1]?.specialised ?? '',
      /size 0 of input 0 was 1, and sizes 0 and 1 have graphs of their own/,
    );
  });
});

describe('the number of graphs', () => {
  it('does not grow with the number of shapes', () => {
    const counter = CompileCounter();
    const fn = compile((x: Tensor) => x.mul(2), { backend: counter, fullgraph: true });
    for (const round of [0, 1])
      for (let n = 2; n < 90; n++)
        assert.deepEqual(fn(ones([n])).tolist(), new Array(n).fill(2), `${round}`);
    assert.equal(counter.frameCount, 2);
  });

  it('has its limit, beyond which dynamic graphs go on to serve new shapes', () => {
    compiler.config.recompileLimit = 2;
    try {
      const counter = CompileCounter();
      const fn = compile((x: Tensor, k: number) => x.mul(k), { backend: counter, fullgraph: true });
      for (const n of [2, 3, 4]) fn(ones([n]), 2);
      assert.equal(counter.frameCount, 2);
      assert.deepEqual(fn(ones([5]), 2).tolist(), new Array(5).fill(2));
      assert.throws(() => fn(ones([5]), 3), CompileError);
      assert.equal(counter.frameCount, 2);
    } finally {
      compiler.config.recompileLimit = 8;
    }
  });

  it('keeps numbers of other arguments apart from sizes', () => {
    const counter = CompileCounter();
    const fn = compile((x: Tensor, k: number) => x.mul(k), { backend: counter });
    for (const [n, k] of [
      [2, 2],
      [3, 3],
      [5, 5],
      [5, 3],
      [4, 2],
      [4, 3],
    ] as const)
      assert.deepEqual(fn(ones([n]), k).tolist(), new Array(n).fill(k));
  });

  it('allows changes in place by numbers that differ from call to call', () => {
    const change = (x: Tensor, k: number): Tensor => x.exp().mul_(k).add(x);
    const fn = compile(
      (x: Tensor, k: number) => {
        graphBreak();
        return change(x, k);
      },
      { backend: 'inductor' },
    );
    for (const k of [1, 2, 3, 4])
      assert.equal(fn(ones([1]), k).item(), change(ones([1]), k).item());
  });

  it('is two for modules below a break', () => {
    const linear = new nn.Linear(3, 2);
    const counter = CompileCounter();
    const fn = compile((x: Tensor) => linear(x).mul(linear(x).sum().item()), { backend: counter });
    for (const n of [2, 3, 4, 5]) fn(rand([n, 3]));
    // and for each shape the sum, and the product
    assert.equal(counter.frameCount, 2 + 2 * 4);
  });
});

describe('a dynamic graph', () => {
  it('serves no arguments that differ in more than sizes', () => {
    const fn = (x: Tensor, y: Tensor): Tensor => {
      x.add_(1);
      return y.mul(2);
    };
    const counter = CompileCounterWithBackend('aot_eager_decomp_partition');
    const compiled = compile(fn, { backend: counter });
    for (const [n, shares] of [
      [2, false],
      [3, false],
      [3, true],
      [4, true],
      [4, false],
    ] as const) {
      const [x, other] = [ones([n]), ones([n])];
      const y = shares ? x.detach() : other;
      assert.deepEqual(
        compiled(x, y).tolist(),
        new Array(n).fill(shares ? 4 : 2),
        `${n}, ${shares}`,
      );
    }
    assert.equal(counter.frameCount, 4, 'fixed and dynamic, each with and without shared memory');
  });

  it('serves no calls in another mode', () => {
    for (const backend of ['eager', 'aot_eager'] as const) {
      const compiled = compile((x: Tensor) => x.mul(2), { backend });
      for (const n of [2, 3, 4]) {
        assert.ok(noGrad(() => compiled(ones([n], { requiresGrad: true }))).gradFn === null);
        assert.ok(compiled(ones([n], { requiresGrad: true })).requiresGrad);
        assert.ok(!compiled(ones([n])).requiresGrad);
      }
    }
  });

  it('can be copied, checked and run by a backend that changes it', () => {
    const fn = compile((x: Tensor) => x.mul(2).view([-1]), {
      backend: (module) => {
        lint(module.graph);
        const [mul] = module.graph.callNodes;
        if (mul) mul.inputs = [mul.inputs[0]!, mul.inputs[0]!];
        module.recompile();
        return module.forward.bind(module);
      },
    });
    for (const n of [2, 3, 4])
      assert.deepEqual(fn(ones([n, 1]).mul(3)).tolist(), new Array(n).fill(9));
  });

  it('refuses sizes that it does not serve', () => {
    const modules: GraphModule[] = [];
    const fn = compile((x: Tensor, y: Tensor) => x.add(y), {
      backend: (module) => {
        modules.push(module);
        return module.forward.bind(module);
      },
    });
    for (const n of [2, 3]) fn(ones([n]), ones([n]));
    const run = compile(modules[1] as GraphModule, { backend: 'eager' });
    assert.deepEqual((run(ones([6]), ones([6]))[0] as Tensor).tolist(), new Array(6).fill(2));
    assert.throws(() => run(ones([6]), ones([1])), CompileError);
    assert.throws(() => run(ones([1]), ones([1])), /at least 2/);
  });

  it('finds a backend that returns results of another shape', () => {
    const fn = compile((x: Tensor) => x.mul(2), {
      backend: (_module, [example]): CompiledGraph => {
        const [size] = (example as Tensor).shape;
        return () => [zeros([size as number])];
      },
    });
    fn(ones([2]));
    fn(ones([3]));
    assert.throws(() => fn(ones([4])), /returned float32\[3\] as output 0/);
  });
});

describe('a dynamic graph of an op with a state', () => {
  const scale = { factor: 2 };
  const scaled = library
    .customOp('dynamic_graphs::scaled', {}, (x: Tensor) => x.clone())
    .registerFake((x) => x)
    .registerAutograd({
      state: () => scale,
      backward: (_, grad) => [grad?.mul(scale.factor) ?? null],
    });

  for (const dynamic of [undefined, true])
    it(`serves the state of its capture alone, with dynamic: ${dynamic}`, () => {
      const fn = compile((x: Tensor) => scaled(x).sum(), { dynamic });
      const sizes = [3, 4, 5, 5, 6, 6];
      const factors = [2, 2, 2, 3, 3, 2];
      const gradients = sizes.map((size, i) => {
        scale.factor = factors[i] as number;
        const x = ones([size]).requiresGrad_();
        fn(x).backward();
        return x.grad?.amax().item();
      });
      assert.deepEqual(gradients, factors);
    });
});
