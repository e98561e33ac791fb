/** Activation checkpoints in compiled functions. */
import assert from 'node:assert/strict';
import { isDeepStrictEqual } from 'node:util';
import type { BackendName } from '../../../lib/compile/backends.js';
import { compiledAutograd, type GraphModule } from '../../../lib/compile/index.js';
import type { CheckpointOptions, SelectiveCheckpointPolicy } from '../../../lib/distributed.js';
import {
  applyActivationCheckpointing,
  CheckpointPolicy,
  checkpoint,
  checkpointWrapper,
  createSelectiveCheckpointContexts,
  DTensor,
  initDeviceMesh,
  Replicate,
  Shard,
} from '../../../lib/distributed.js';
import {
  CompileError,
  cat,
  compile,
  compiler,
  manualSeed,
  memory,
  nn,
  noGrad,
  ones,
  randn,
  scope,
  type Tensor,
} from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';

const F = nn.functional;
const backends: readonly BackendName[] = ['eager', 'aot_eager', 'aot_eager_decomp_partition'];
type Fn = (...args: Tensor[]) => Tensor;

interface Made {
  readonly fn: Fn;
  readonly leaves: Tensor[];
}

interface Observed {
  readonly values: unknown[];
  readonly bytes: number;
}

/** What a step gives. */
async function stepOf({ fn, leaves }: Made, step: number): Promise<unknown[]> {
  manualSeed(step);
  const result = scope(() => fn(...leaves));
  const drawn = randn([1]);
  result.sum().backward();
  const all = [drawn, randn([1]), result, ...leaves.flatMap((t) => t.grad ?? [])];
  const values = await Promise.all(all.map((t) => t.read()));
  for (const t of leaves) t.grad = null;
  return values.map((list) => [...(list as Float32Array)]);
}

/** The bytes that a step keeps for backward. */
function bytesOf({ fn, leaves }: Made): number {
  memory.collect();
  const before = memory.stats('cpu').allocatedBytes;
  const result = scope(() => fn(...leaves));
  const bytes = memory.stats('cpu').allocatedBytes - before;
  result.sum().backward();
  return bytes;
}

/** What steps give: the capture, replays, and one whose memory is counted. */
async function observed(made: Made): Promise<Observed> {
  const values: unknown[] = [];
  for (let step = 0; step < 2; step++) values.push(await stepOf(made, step));
  return { values, bytes: bytesOf(made) };
}

function close(actual: unknown, expected: unknown): void {
  if (Array.isArray(expected)) {
    assert.equal((actual as unknown[]).length, expected.length);
    expected.forEach((each, i) => close((actual as unknown[])[i], each));
  } else if (typeof expected === 'number')
    assert.ok(Math.abs((actual as number) - expected) <= 1e-5 * (1 + Math.abs(expected)));
  else assert.equal(actual, expected);
}

async function assertCaptured(make: () => Made): Promise<void> {
  const expected = await observed(make());
  for (const backend of backends) {
    const made = make();
    const found = await observed({ ...made, fn: compile(made.fn, { fullgraph: true, backend }) });
    if (backend.includes('decomp')) close(found.values, expected.values);
    else assert.ok(isDeepStrictEqual(found.values, expected.values), `${backend}: other values`);
    assert.ok(found.bytes <= expected.bytes, `${backend}: ${found.bytes}, not ${expected.bytes}`);
  }
}

const leaf = (...shape: number[]): Tensor => randn(shape).mul(0.2).detach().requiresGrad_();
const block = (x: Tensor, w: Tensor): Tensor =>
  F.dropout(F.gelu(x.matmul(w)), { p: 0.5 }).matmul(w);
const leaves = (): Tensor[] => (manualSeed(9), [leaf(64, 64), leaf(64, 64)]);
const made = (fn: Fn) => (): Made => ({ fn, leaves: leaves() });
const selective = (policy: SelectiveCheckpointPolicy | readonly string[]): CheckpointOptions => ({
  contextFn: () => createSelectiveCheckpointContexts(policy),
});

describe('a compiled function with a checkpoint', () => {
  it('draws, computes and keeps for backward what the function does', async () => {
    await assertCaptured(made((x, w) => checkpoint(block, checkpoint(block, x, w), w)));
  });

  it('keeps what the uncompiled function keeps around it', async () => {
    await assertCaptured(
      made((x, w) => {
        const h = x.add(checkpoint(block, x.sin(), w));
        return h
          .add(checkpoint(block, h, w))
          .tanh()
          .mul(2);
      }),
    );
  });

  it('keeps no more with the options of the checkpoint', async () => {
    await assertCaptured(
      made((x, w) => {
        const y = checkpoint(block, x, w, { earlyStop: false });
        return checkpoint(block, y, w, { determinismCheck: 'none' });
      }),
    );
  });

  it('nests', async () => {
    const inner = (x: Tensor, w: Tensor): Tensor => checkpoint(block, x.tanh(), w).cos();
    await assertCaptured(
      made((x, w) => checkpoint((t: Tensor) => checkpoint(inner, t.sin(), w).exp(), x)),
    );
  });

  it('computes again what the function changes in place', async () => {
    await assertCaptured(
      made((x, w) =>
        checkpoint((t: Tensor) => {
          const h = t.matmul(w).exp();
          h.mul_(0.5).add_(t);
          return h.sin().matmul(w);
        }, x),
      ),
    );
  });

  it('takes modules, functions, closures and options objects', async () => {
    const model = (): Made => {
      manualSeed(2);
      const layer = new nn.TransformerEncoderLayer(8, 2, { dimFeedforward: 32, batchFirst: true });
      const scaled = (t: Tensor, { by }: { by: Tensor[] }): Tensor => layer(t).mul(by[0] as Tensor);
      const fn: Fn = (x) => checkpoint(scaled, checkpoint(layer, x), { by: [x] });
      return { fn, leaves: [leaf(2, 5, 8)] };
    };
    await assertCaptured(model);
  });

  it('is a wrapped module', async () => {
    await assertCaptured(() => {
      manualSeed(3);
      const layers = Array.from({ length: 3 }, () => new nn.Linear(16, 16));
      const [first, second, third] = layers as [nn.Linear, nn.Linear, nn.Linear];
      const wrapped = checkpointWrapper(new nn.Sequential(first, new nn.Tanh()));
      const rest = new nn.Sequential(new nn.Sequential(second, new nn.Dropout(0.2)), third);
      applyActivationCheckpointing(rest, { checkFn: (m) => m instanceof nn.Sequential });
      const model = new nn.Sequential(wrapped, rest);
      return {
        fn: model as unknown as Fn,
        leaves: [leaf(8, 16), ...model.parameters()].slice(0, 1),
      };
    });
  });

  it('keeps what a policy says', async () => {
    const policies: (SelectiveCheckpointPolicy | string[])[] = [
      ['matmul'],
      (_, op) => op === 'gelu',
      (_, op) => (op === 'matmul' ? CheckpointPolicy.MUST_RECOMPUTE : CheckpointPolicy.MUST_SAVE),
      (_, op) => (op === 'matmul' ? CheckpointPolicy.PREFER_SAVE : CheckpointPolicy.MUST_RECOMPUTE),
      () => CheckpointPolicy.PREFER_SAVE,
    ];
    await assertCaptured(
      made((x, w) =>
        policies.reduce((y, policy) => checkpoint(block, y, w, selective(policy)).sin(), x),
      ),
    );
  });

  it('serves several shapes by one dynamic graph', () => {
    const fn = (x: Tensor): Tensor => checkpoint((t: Tensor) => t.exp().sin(), x.mul(2));
    let graphs = 0;
    const compiled = compile(fn, { backend: (module) => (graphs++, module.forward.bind(module)) });
    for (const n of [2, 3, 4, 5]) {
      const [x, y] = [leaf(n), leaf(n)];
      noGrad(() => y.copy_(x));
      fn(x).sum().backward();
      compiled(y).sum().backward();
      assert.deepEqual(y.grad?.tolist(), x.grad?.tolist());
    }
    assert.equal(graphs, 2);
  });

  it('is computed again in captured backward passes', () => {
    const fn = (x: Tensor): Tensor => checkpoint((t: Tensor) => t.exp().dropout(0.5).sin(), x);
    const grads = (of: Fn, enable: (run: () => void) => void): unknown => {
      manualSeed(4);
      const x = leaf(6);
      for (let i = 0; i < 3; i++) enable(() => of(x).sum().backward());
      return x.grad?.tolist();
    };
    const compiler = (module: GraphModule) => compile(module);
    const expected = grads(fn, (run) => run());
    const found = grads(compile(fn), (run) => compiledAutograd.enable(compiler, run));
    assert.deepEqual(found, expected);
  });

  it('is tagged node by node', () => {
    const explained = compiler.explain((x: Tensor, w: Tensor) =>
      checkpoint((t: Tensor) => t.matmul(w).sin(), x.exp(), selective(['matmul'])),
    );
    const [graph] = explained(...(leaves() as [Tensor, Tensor])).graphs;
    const tags = graph?.graph.callNodes.map(({ name, tags }) => [name, ...tags]);
    assert.deepEqual(tags, [
      ['exp'],
      ['matmul', 'mustRecompute:0', 'mustSave'],
      ['sin', 'mustRecompute:0', 'preferRecompute'],
    ]);
  });

  it('runs as it is without gradients', () => {
    const fn = compile((x: Tensor) => checkpoint((t: Tensor) => t.sin(), x), { fullgraph: true });
    const x = randn([3]);
    for (let i = 0; i < 2; i++) assert.deepEqual(noGrad(() => fn(x)).tolist(), x.sin().tolist());
  });

  it(
    'is a graph of distributed tensors',
    withRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      await assertCaptured(() => {
        const fn: Fn = (x, w) => {
          const sharded = DTensor.fromLocal(x, mesh, [Shard(1)]);
          const weight = DTensor.fromLocal(w, mesh, [Replicate()]);
          const gathered = (t: Tensor): Tensor =>
            (t as DTensor).redistribute([Replicate()]).matmul(weight).tanh().dropout(0.5);
          return (checkpoint(gathered, sharded.sin()) as DTensor).toLocal().mul(2);
        };
        manualSeed(9);
        return { fn, leaves: [leaf(8, 4), leaf(8, 8)] };
      });
    }),
  );
});

describe('a compiled function breaks at a checkpoint', () => {
  const refused: [string, Fn][] = [
    [
      'that draws anew',
      (x) => checkpoint((t: Tensor) => t.dropout(0.5), x, { preserveRngState: false }),
    ],
    [
      'that changes a tensor which it did not make',
      (x, w) => checkpoint((t: Tensor) => (w.detach().add_(1), t.sin().cos()), x),
    ],
    [
      'that reads a tensor which changes later',
      (x, w) => {
        const y = checkpoint((t: Tensor) => t.sin().mul(w.detach()).exp(), x);
        w.detach().add_(1);
        return y;
      },
    ],
    [
      'whose kept result changes',
      (x) => {
        const options = selective(() => CheckpointPolicy.MUST_SAVE);
        const fn = (t: Tensor): Tensor => t.exp().mul_(2);
        return checkpoint(fn, x.detach(), options).add(x);
      },
    ],
    [
      'with contexts of the program',
      (x) =>
        checkpoint((t: Tensor) => t.sin(), x, {
          contextFn: () => [(fn) => fn(), (fn) => fn()],
        }),
    ],
  ];
  for (const [what, fn] of refused)
    it(`${what}, and runs as it is`, async () => {
      const [x, w] = leaves() as [Tensor, Tensor];
      assert.throws(() => compile(fn, { fullgraph: true })(x, w), CompileError);
      const results = [];
      for (const each of [fn, compile(fn)]) {
        const program = { fn: each, leaves: leaves() };
        results.push([await stepOf(program, 1), await stepOf(program, 2)]);
      }
      assert.ok(isDeepStrictEqual(results[1], results[0]));
    });

  it('with modules in it that are compiled one by one, which are so when it runs again', () => {
    class Output {
      readonly value: Tensor;
      constructor(value: Tensor) {
        this.value = value;
      }
    }
    const gradsOf = (run: (fn: (x: Tensor) => Output) => (x: Tensor) => Output): Tensor => {
      manualSeed(3);
      const layers = new nn.Sequential(
        new nn.Linear(4, 5),
        new nn.Tanh(),
        new nn.Linear(5, 4),
      ).double();
      // A result in an instance of a class breaks the graph.
      const step = run((x) => checkpoint((t: Tensor) => new Output(layers(t)), x));
      step(ones([2, 4]).double())
        .value.square()
        .sum()
        .backward();
      return cat([...layers.parameters()].map((p) => (p.grad as Tensor).flatten()));
    };
    const expected = gradsOf((fn) => fn);
    for (const backend of [...backends, 'inductor'] as const) {
      const grads = gradsOf((fn) => compile(fn, { backend }));
      assert.ok(grads.allclose(expected, { rtol: 0, atol: 1e-12 }), backend);
    }
  });

  it('names the place of what it cannot compute again', () => {
    const model = new nn.Sequential(new nn.Linear(2, 2), new nn.BatchNorm1d(2));
    const fn = compile((x: Tensor) => checkpoint(model, x), { fullgraph: true });
    assert.throws(
      () => fn(leaf(3, 2)),
      /code which backward runs again was changed.*, at .*regions/s,
    );
  });
});
