/** One graph for several shapes: programs that read sizes, compared with themselves run eagerly. */
import assert from 'node:assert/strict';
import {
  arange,
  cat,
  compile,
  full,
  manualSeed,
  nn,
  ones,
  rand,
  Tensor,
  tensor,
  zeros,
} from '../../../lib/index.js';
import { CompileCounterWithBackend } from '../../../lib/testing/index.js';

type Fn = (...args: Tensor[]) => unknown;
const BACKENDS = ['eager', 'aot_eager', 'aot_eager_decomp_partition', 'inductor'] as const;

const leaf = (...shape: number[]): Tensor => rand(shape).requiresGrad_();

function observed(fn: Fn, make: () => Tensor[], seed: number): unknown {
  manualSeed(seed);
  const args = make();
  const results = [fn(...args)].flat();
  for (const t of results)
    if (t instanceof Tensor && t.requiresGrad) t.mul(t).sum().backward({ retainGraph: true });
  return {
    results: results.map((t) =>
      t instanceof Tensor ? [t.tolist(), t.shape, t.strides, t.requiresGrad] : t,
    ),
    arguments: args.map((t) => [t.tolist(), t._version, t.grad?.tolist() ?? null]),
  };
}

/** Equal, and numbers equal up to the rounding of other kernels: decompositions choose some. */
function assertSame(a: unknown, b: unknown, at: string): void {
  if (typeof a === 'number' && typeof b === 'number') {
    const isClose = Object.is(a, b) || Math.abs(a - b) <= 1e-5 * (1 + Math.abs(b));
    assert.ok(isClose, `${at}: ${a} instead of ${b}`);
  } else if (typeof a === 'object' && a !== null && typeof b === 'object' && b !== null) {
    assert.deepEqual(Object.keys(a), Object.keys(b), at);
    for (const [key, value] of Object.entries(a))
      assertSame(value, (b as Record<string, unknown>)[key], `${at}.${key}`);
  } else assert.equal(a, b, at);
}

interface Expected {
  /** Graphs that the backend gets. */
  frames: number;
  dynamic?: boolean;
}

/** Runs the function at shapes in turn, twice each, and the first one once more at the end. */
function assertDynamic(fn: Fn, shapes: readonly (() => Tensor[])[], expected: Expected): void {
  for (const backend of BACKENDS) {
    const counter = CompileCounterWithBackend(backend);
    const { dynamic } = expected;
    const compiled = compile(fn, { backend: counter, fullgraph: true, dynamic }) as Fn;
    [...shapes, shapes[0] as () => Tensor[]].forEach((make, i) => {
      for (const seed of [i, i + 100])
        assertSame(
          observed(compiled, make, seed),
          observed(fn, make, seed),
          `${backend}, call ${i}`,
        );
    });
    assert.equal(counter.frameCount, expected.frames, backend);
  }
}

const sizes = (make: (n: number) => Tensor[], ...all: number[]): (() => Tensor[])[] =>
  all.map((n) => () => make(n));

describe('one graph for several shapes', () => {
  it('serves batches of any size from the second on', () => {
    const w = rand([3, 5]);
    assertDynamic(
      (x) => (x as Tensor).matmul(w).relu(),
      sizes((n) => [leaf(n, 3)], 2, 4, 3, 7, 12),
      {
        frames: 2,
      },
    );
  });

  it('makes a graph for each shape if dynamic is false', () => {
    assertDynamic(
      (x) => (x as Tensor).mul(2),
      sizes((n) => [leaf(n, 3)], 2, 4, 3),
      {
        frames: 3,
        dynamic: false,
      },
    );
  });

  it('serves all shapes by the first graph if dynamic is true', () => {
    assertDynamic(
      (x) => (x as Tensor).softmax(1).sum(0),
      [
        [2, 3],
        [4, 3],
        [4, 6],
        [5, 5],
      ].map((shape) => () => [leaf(...shape)]),
      { frames: 1, dynamic: true },
    );
  });

  it('finds by trials at the first call which sizes may change', () => {
    const linear = new nn.Linear(4, 6);
    assertDynamic(
      (x) => linear(x as Tensor),
      sizes((n) => [leaf(n, 4)], 4, 2, 7),
      {
        frames: 1,
        dynamic: true,
      },
    );
  });

  it('views and permutes sequences for attention', () => {
    const heads = 2;
    const attention: Fn = (x) => {
      const t = x as Tensor;
      const [batch, length, width] = t.shape as [number, number, number];
      const q = t.view([batch, length, heads, width / heads]).transpose(1, 2);
      const scores = q.matmul(q.transpose(-2, -1)).mul(1 / Math.sqrt(width / heads));
      const mask = full([length, length], 1).triu(1).eq(1);
      const out = scores.maskedFill(mask, -1e9).softmax(-1).matmul(q);
      return out.transpose(1, 2).reshape([batch * length, width]);
    };
    assertDynamic(
      attention,
      [
        [2, 3, 4],
        [2, 5, 4],
        [2, 8, 4],
        [3, 5, 4],
      ].map((s) => () => [leaf(...s)]),
      {
        frames: 3,
      },
    );
    assertDynamic(
      attention,
      [
        [2, 3, 4],
        [3, 5, 4],
        [2, 8, 4],
        [7, 7, 4],
      ].map((s) => () => [leaf(...s)]),
      {
        frames: 2,
      },
    );
    assertDynamic(
      attention,
      [
        [2, 3, 4],
        [3, 5, 4],
        [2, 8, 4],
        [7, 7, 4],
      ].map((s) => () => [leaf(...s)]),
      {
        frames: 1,
        dynamic: true,
      },
    );
  });

  it('keeps sizes of two arguments equal that were equal, and makes another graph if they differ', () => {
    const pair = (a: number, b: number) => () => [leaf(a, 3), leaf(b, 3)];
    assertDynamic((x, y) => cat([x as Tensor, y as Tensor]), [pair(2, 2), pair(4, 4), pair(5, 5)], {
      frames: 2,
    });
    assertDynamic(
      (x, y) => cat([x as Tensor, y as Tensor]),
      [pair(2, 2), pair(4, 4), pair(5, 3), pair(6, 7), pair(9, 9)],
      { frames: 3 },
    );
  });

  it('splits and slices by sizes', () => {
    assertDynamic(
      (x) => {
        const t = x as Tensor;
        const [n] = t.shape as [number];
        const [a, b] = t.split(n / 2, 0) as [Tensor, Tensor];
        return [a.add(b), t.narrow(0, 1, n - 2)];
      },
      sizes((n) => [leaf(n, 2)], 4, 8, 6, 10),
      { frames: 2 },
    );
  });

  it('divides by sizes', () => {
    assertDynamic(
      (x) => {
        const t = x as Tensor;
        const n = t.numel();
        return [t.mean(), t.sum().div(n), t.mul(1 / n), t.mul(1 / Math.sqrt(t.shape[0] as number))];
      },
      sizes((n) => [leaf(n, 3)], 3, 4, 7, 10),
      { frames: 2 },
    );
  });

  it('adds positions of the length given', () => {
    assertDynamic(
      (x) => (x as Tensor).add(arange((x as Tensor).shape[1] as number)).add(tensor([[1], [2]])),
      sizes((n) => [leaf(2, n)], 3, 4, 7, 10),
      { frames: 2 },
    );
  });

  it('has graphs of their own for sizes 0 and 1', () => {
    assertDynamic(
      (x, y) => (x as Tensor).add(y as Tensor),
      sizes((n) => [leaf(n, 2), leaf(3, 2)], 1, 3).concat(
        sizes((n) => [leaf(n, 2), leaf(n, 2)], 3),
      ),
      { frames: 2 },
    );
    assertDynamic(
      (x) => (x as Tensor).mul(2),
      sizes((n) => [leaf(n, 2)], 2, 3, 1, 0, 5),
      {
        frames: 4,
      },
    );
  });

  it('takes the other branch of a condition on a size', () => {
    assertDynamic(
      (x) => ((x as Tensor).shape[0]! > 4 ? (x as Tensor).mul(2) : (x as Tensor).add(1)),
      sizes((n) => [leaf(n)], 2, 3, 4, 5, 6, 7),
      { frames: 4 },
    );
    assertDynamic(
      (x) => ((x as Tensor).shape[0]! > 4 ? (x as Tensor).mul(2) : (x as Tensor).mul(3)),
      sizes((n) => [leaf(n)], 2, 3, 4, 5, 6, 7),
      { frames: 4 },
    );
  });

  it('notices what few shapes do not tell', () => {
    assertDynamic(
      (x) => (x as Tensor).mul(Math.floor((x as Tensor).shape[0]! / 2)),
      sizes((n) => [leaf(n)], 2, 4, 6, 5),
      { frames: 3 },
    );
    assertDynamic(
      (x) => (x as Tensor).mul((x as Tensor).shape[0]! ** 4),
      sizes((n) => [leaf(n)], 2, 3, 5),
      { frames: 3 },
    );
  });

  it('returns sizes of the call', () => {
    assertDynamic(
      (x) => [(x as Tensor).mul(2), (x as Tensor).shape[0]],
      sizes((n) => [leaf(n)], 2, 3, 5),
      {
        frames: 2,
      },
    );
  });

  it('changes buffers of modules and arguments', () => {
    class Count extends nn.Module {
      declare seen: Tensor;
      constructor() {
        super();
        this.registerBuffer('seen', zeros([]));
      }
      forward(x: Tensor): Tensor {
        this.seen.add_(x.shape[0] as number);
        return x.mul_(2).sum(0);
      }
    }
    for (const backend of BACKENDS) {
      const counter = CompileCounterWithBackend(backend);
      const module = new Count();
      const compiled = compile(module, { backend: counter, fullgraph: true });
      for (const n of [2, 3, 5, 4, 3]) {
        const x = ones([n, 2]);
        assert.deepEqual(compiled(x).tolist(), [2 * n, 2 * n]);
        assert.deepEqual(x.tolist(), ones([n, 2]).mul(2).tolist());
      }
      assert.equal(module.seen.item(), 17);
      assert.equal(counter.frameCount, 2);
    }
  });

  it('draws anew at every run', () => {
    assertDynamic(
      (x) => nn.functional.dropout(x as Tensor, 0.5),
      sizes((n) => [leaf(n, 4)], 2, 3, 5),
      {
        frames: 2,
      },
    );
  });

  it('trains a model with layers of several kinds', () => {
    manualSeed(3);
    const model = new nn.Sequential(
      new nn.Linear(4, 8),
      new nn.LayerNorm([8]),
      new nn.ReLU(),
      new nn.Linear(8, 4),
    );
    assertDynamic(
      (x) => model(x as Tensor).mean(),
      sizes((n) => [leaf(n, 6, 4)], 2, 3, 5),
      {
        frames: 2,
      },
    );
  });
});
