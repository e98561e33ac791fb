/** Captured backward passes of models on several ranks: values, collectives and memory of eager. */
import assert from 'node:assert/strict';
import { type BackwardCompiler, compile, compiledAutograd } from '../../../lib/compile/index.js';
import {
  applyActivationCheckpointing,
  ColwiseParallel,
  CommDebugMode,
  DistributedDataParallel,
  type DistributedDataParallelOptions,
  DTensor,
  type FSDPModule,
  type FSDPOptions,
  FullyShardedDataParallel,
  fullyShard,
  initDeviceMesh,
  MixedPrecisionPolicy,
  parallelizeModule,
  RowwiseParallel,
} from '../../../lib/distributed.js';
import {
  bfloat16,
  float32,
  manualSeed,
  nn,
  optim,
  randn,
  type Storage,
  type Tensor,
} from '../../../lib/index.js';
import { onRanks } from '../../distributed/support/on-ranks.js';
import { assertClose } from '../../seeds/compiled.js';

const RANKS = 2;
const STEPS = 5;

class Mlp extends nn.Module {
  up = new nn.Linear(6, 10);
  down = new nn.Linear(10, 6);
  forward(x: Tensor): Tensor {
    return this.down(this.up(x).relu());
  }
}

class Model extends nn.Module {
  first = new Mlp();
  second = new Mlp();
  forward(x: Tensor): Tensor {
    return this.second(this.first(x));
  }
}

const BACKENDS = [null, 'eager', 'aot_eager', 'aot_eager_decomp_partition'] as const;
type Backend = (typeof BACKENDS)[number];

/** A compiler of backward graphs, and the graphs that it got. */
function compilerOf(backend: Backend): { compiler: BackwardCompiler; graphs: string[] } {
  const graphs: string[] = [];
  const compiler: BackwardCompiler = (module) => {
    graphs.push(module.code);
    return backend === null ? (...inputs) => module.run(inputs) : compile(module, { backend });
  };
  return { compiler, graphs };
}

interface Loop {
  /** Makes a model parallel. */
  readonly wrap: (model: Model) => nn.AnyModule;
  /** The memory that must be free after each step. */
  readonly freed?: (model: Model) => () => readonly Storage[];
  /** Whether gradients are summed over steps. */
  readonly accumulates?: boolean;
  /** What runs a backward pass. */
  readonly around?: (step: number, backward: () => void) => void;
  /** Called before each step. */
  readonly before?: (step: number, parallel: nn.AnyModule) => void;
}

/** Trains a model. What one rank sees: losses, gradients, parameters and collectives. */
async function train(loop: Loop, rank: number): Promise<unknown[]> {
  const { wrap, freed, before, accumulates = false } = loop;
  const { around = (_, backward) => backward() } = loop;
  manualSeed(0);
  const model = new Model();
  const parallel = wrap(model);
  const storages = freed?.(model) ?? (() => []);
  const optimizer = new optim.AdamW(parallel.parameters(), { lr: 0.01 });
  const seen: unknown[] = [];
  for (let step = 0; step < STEPS; step++) {
    manualSeed(step * RANKS + rank);
    before?.(step, parallel);
    const mode = new CommDebugMode();
    const loss = mode.run(() => {
      const value = (parallel as unknown as (x: Tensor) => Tensor)(randn([4, 6]))
        .square()
        .mean();
      around(step, () => value.backward());
      return value;
    });
    for (const storage of storages()) assert.equal(storage.size(), 0);
    const parameters = [...parallel.parameters()];
    seen.push(await valuesOf([loss, ...parameters.map((p) => p.grad)]));
    optimizer.step();
    if (!accumulates) optimizer.zeroGrad();
    seen.push(await valuesOf(parameters));
    seen.push(mode.events.map(({ kind, phase, bytes }) => `${phase} ${kind} ${bytes}`));
  }
  return seen;
}

async function valuesOf(tensors: readonly (Tensor | null)[]): Promise<unknown[]> {
  return Promise.all(
    tensors.map(async (t) => {
      if (t === null) return null;
      const distributed = t instanceof DTensor;
      const local = distributed ? t.toLocal() : t;
      const values = await local.detach().contiguous().read();
      return [distributed ? t.placements.map(String) : null, Array.from(values, Number)];
    }),
  );
}

/** Compares training in captured passes with eager training. */
const assertAsEager = (loop: Loop, backend: Backend, captures: number): Promise<void[]> =>
  onRanks(RANKS, async (rank) => {
    const expected = await train(loop, rank);
    const { compiler, graphs } = compilerOf(backend);
    const around = (_: number, backward: () => void): void =>
      compiledAutograd.enable(compiler, backward);
    assertClose(await train({ ...loop, around }, rank), expected);
    assert.equal(graphs.length, captures, graphs.join('\n\n'));
  });

const shardAll = (model: Model): nn.AnyModule => {
  fullyShard(model.first);
  fullyShard(model.second);
  return fullyShard(model);
};

/** The memory of whole parameters. */
const wholeParameters = (model: Model): (() => readonly Storage[]) => {
  const found = new Set<Storage>();
  for (const layer of [model.first.up, model.first.down, model.second.up, model.second.down])
    layer.registerForwardPreHook((each) => {
      assert.ok(!(each.weight instanceof DTensor));
      found.add(each.weight.untypedStorage() as unknown as Storage);
    });
  return () => {
    assert.equal(found.size, 2);
    return [...found];
  };
};

const columnsThenRows = (model: Model): nn.AnyModule => {
  const mesh = initDeviceMesh('cpu', [RANKS]);
  return parallelizeModule(model, mesh, {
    'first.up': new ColwiseParallel(),
    'first.down': new RowwiseParallel(),
    'second.up': new ColwiseParallel(),
    'second.down': new RowwiseParallel(),
  });
};

for (const backend of BACKENDS)
  describe(`compiledAutograd on several ranks (backend ${backend})`, () => {
    it('captures the backward of fullyShard once, and frees whole parameters', () =>
      assertAsEager({ wrap: shardAll, freed: wholeParameters }, backend, 1));

    it('captures it twice where gradients are summed over steps', () =>
      assertAsEager({ wrap: shardAll, accumulates: true }, backend, 2));

    it('captures the backward of a model with tensor parallelism once', () =>
      assertAsEager({ wrap: columnsThenRows }, backend, 1));

    it('captures the backward of DistributedDataParallel once', () =>
      assertAsEager({ wrap: (model) => new DistributedDataParallel(model) }, backend, 1));
  });

const options = {
  sharded:
    (given: Parameters<typeof fullyShard>[1], root = given) =>
    (model: Model) => {
      fullyShard(model.first, given);
      fullyShard(model.second, given);
      return fullyShard(model, root);
    },
  flat: (given: FSDPOptions) => (model: Model) => {
    for (const name of ['first', 'second'] as const)
      (model as unknown as Record<string, unknown>)[name] = new FullyShardedDataParallel(
        model[name],
        given,
      );
    return new FullyShardedDataParallel(model, given);
  },
  replicated: (given: DistributedDataParallelOptions) => (model: Model) =>
    new DistributedDataParallel(model, given),
};

const bfloat = new MixedPrecisionPolicy({ paramDtype: bfloat16, reduceDtype: float32 });
/** Gradients are reduced in odd steps only. */
const syncsAtOdd = (step: number, parallel: nn.AnyModule): void => {
  (parallel as unknown as FSDPModule).setRequiresGradientSync(step % 2 === 1);
};

const VARIANTS: Record<string, [loop: Loop, captures: number]> = {
  'whole parameters that stay until backward': [
    { wrap: options.sharded({ reshardAfterForward: false }) },
    1,
  ],
  'mixed precision': [{ wrap: options.sharded({ mpPolicy: bfloat }) }, 1],
  'frozen parameters': [
    {
      wrap: (model) => {
        for (const p of model.second.parameters()) p.requiresGrad_(false);
        return shardAll(model);
      },
    },
    1,
  ],
  'reductions in every other step': [{ wrap: shardAll, before: syncsAtOdd, accumulates: false }, 2],
  'activation checkpoints': [
    {
      wrap: (model) => {
        applyActivationCheckpointing(model, { checkFn: (m) => m instanceof Mlp });
        return shardAll(model);
      },
    },
    0,
  ],
  'flat parameters': [{ wrap: options.flat({}) }, 1],
  'flat original parameters': [{ wrap: options.flat({ useOrigParams: true }) }, 1],
  'gradients in buckets': [{ wrap: options.replicated({ gradientAsBucketView: true }) }, 1],
  'buckets of copies': [{ wrap: options.replicated({ gradientAsBucketView: false }) }, 1],
  'unused parameters': [{ wrap: options.replicated({ findUnusedParameters: true }) }, 1],
  'small buckets': [{ wrap: options.replicated({ bucketCapMb: 1e-5 }), accumulates: true }, 2],
};

describe('compiledAutograd', () => {
  for (const [name, [loop, captures]] of Object.entries(VARIANTS))
    it(`trains with ${name} as eager`, () => assertAsEager(loop, 'aot_eager', captures));
});
