/** Parameters of several dtypes in one group: gathered in one call, reduced by their dtypes. */
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  CommDebugMode,
  CPUOffloadPolicy,
  DTensor,
  distributedCheckpoint,
  fullyShard,
  initDeviceMesh,
  MixedPrecisionPolicy,
} from '../../../lib/distributed.js';
import {
  bfloat16,
  compile,
  type DTypeLike,
  float16,
  float32,
  float64,
  manualSeed,
  nn,
  optim,
  randn,
  type Tensor,
} from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';

/** A layer in one dtype with an adapter in another one. */
class Adapted extends nn.Module {
  base: nn.Linear;
  down: nn.Linear;
  up: nn.Linear;
  constructor(size: number, base: DTypeLike, adapter: DTypeLike) {
    super();
    this.base = new nn.Linear(size, size).to(base);
    this.down = new nn.Linear(size, 3, { bias: false }).to(adapter);
    this.up = new nn.Linear(3, size, { bias: false }).to(adapter);
  }
  forward(x: Tensor): Tensor {
    const main = this.base(x.to(this.base.weight.dtype)).to(x.dtype);
    const added = this.up(this.down(x.to(this.down.weight.dtype)));
    return main.add(added.to(x.dtype)).tanh();
  }
}

type Dtypes = readonly [base: DTypeLike, adapter: DTypeLike];

function modelOf([base, adapter]: Dtypes, size = 5, isFrozen = false): nn.Sequential {
  manualSeed(2);
  const model = new nn.Sequential(
    new Adapted(size, base, adapter),
    new Adapted(size, base, adapter),
  );
  if (isFrozen)
    for (const layer of model.children())
      for (const p of (layer as Adapted).base.parameters()) p.requiresGrad_(false);
  return model;
}

type Options = Parameters<typeof fullyShard>[1];

const shard = (model: nn.Sequential, options: Options = {}) => {
  for (const layer of model.children()) fullyShard(layer, options);
  return fullyShard(model, options);
};

const BATCH = 4;
const batchOf = (step: number, rank: number, ranks: number, size: number): Tensor => {
  manualSeed(10 + step);
  return randn([BATCH, size]).narrow(0, (rank * BATCH) / ranks, BATCH / ranks);
};

async function wholeOf(t: Tensor): Promise<number[]> {
  const whole = t instanceof DTensor ? t.fullTensor() : t;
  return [...(await whole.detach().reshape([-1]).to(float64).read())].map(Number);
}

type Run = (x: Tensor) => Tensor;

/** Trains, and returns parameters and the gradients of the last step by name. */
async function trained(
  model: nn.Sequential,
  [rank, ranks]: readonly [number, number],
  { steps = 3, passes = 1, run = (x: Tensor) => model(x) as Tensor, size = 5 } = {},
) {
  const adam = new optim.AdamW(
    [...model.parameters()].filter((p) => p.requiresGrad),
    { lr: 0.02 },
  );
  const grads = new Map<string, number[] | null>();
  for (let step = 0; step < steps; step++) {
    for (let pass = 0; pass < passes; pass++) {
      if ('setRequiresGradientSync' in model)
        (model as ReturnType<typeof shard>).setRequiresGradientSync(pass === passes - 1);
      (run as Run)(batchOf(step * passes + pass, rank, ranks, size))
        .square()
        .mean()
        .backward();
    }
    for (const [name, { grad }] of model.namedParameters())
      grads.set(name, grad && (await wholeOf(grad)));
    adam.step();
    adam.zeroGrad();
  }
  const values = new Map<string, number[] | null>();
  for (const [name, p] of model.namedParameters()) values.set(name, await wholeOf(p));
  return { values, grads };
}

type Trained = Awaited<ReturnType<typeof trained>>;

function assertClose(found: Trained, expected: Trained, tolerance: number): void {
  for (const kind of ['grads', 'values'] as const)
    for (const [name, wanted] of expected[kind]) {
      const values = found[kind].get(name);
      assert.equal(values === null, wanted === null, `${kind} of ${name}`);
      wanted?.forEach((value, i) => {
        const got = values?.[i] as number;
        assert.ok(Math.abs(got - value) <= tolerance, `${kind} of ${name}[${i}]: ${got}, ${value}`);
      });
    }
}

const mixed = (options: ConstructorParameters<typeof MixedPrecisionPolicy>[0]): Options => ({
  mpPolicy: new MixedPrecisionPolicy(options),
});

describe('fullyShard of parameters of several dtypes', () => {
  for (const ranks of [1, 2])
    for (const size of [5, 192])
      for (const isFrozen of [true, false])
        it(
          `trains like one device: ${isFrozen ? 'frozen ' : ''}bfloat16 parts with float32 ` +
            `adapters, ranks: ${ranks}, size: ${size}`,
          withRanks(ranks, async (rank) => {
            const dtypes = [bfloat16, float32] as const;
            const model = shard(modelOf(dtypes, size, isFrozen));
            const found = await trained(model, [rank, ranks], { size });
            const expected = await trained(modelOf(dtypes, size, isFrozen), [0, 1], { size });
            assertClose(found, expected, isFrozen ? 2e-3 : 0.04);
          }),
        );

  it(
    'trains float64 and float32 parameters like one device, to rounding',
    withRanks(2, async (rank) => {
      for (const options of [
        {},
        { reshardAfterForward: false },
        { offloadPolicy: new CPUOffloadPolicy({ pinMemory: false }) },
      ] as Options[]) {
        const dtypes = [float64, float32] as const;
        const found = await trained(shard(modelOf(dtypes), options), [rank, 2]);
        assertClose(found, await trained(modelOf(dtypes), [0, 1]), 1e-5);
      }
    }),
  );

  it(
    'keeps rows on a smaller group, and reduces over replicas',
    withRanks(4, async (rank) => {
      const dtypes = [float64, float32] as const;
      const expected = await trained(modelOf(dtypes), [0, 1]);
      const mesh = initDeviceMesh('cpu', [2, 2], { meshDimNames: ['replicate', 'shard'] });
      for (const options of [{ reshardAfterForward: 2 }, { mesh }])
        assertClose(await trained(shard(modelOf(dtypes), options), [rank, 4]), expected, 1e-5);
    }),
  );

  it(
    'accumulates gradients in each dtype without a reduction until the last pass',
    withRanks(2, async (rank) => {
      const dtypes = [float64, float32] as const;
      const found = await trained(shard(modelOf(dtypes)), [rank, 2], { passes: 3 });
      assertClose(found, await trained(modelOf(dtypes), [0, 1], { passes: 3 }), 1e-5);
    }),
  );

  it(
    'casts parameters of all floating dtypes to paramDtype, and gradients back',
    withRanks(2, async (rank) => {
      const options = mixed({ paramDtype: 'bfloat16', reduceDtype: 'float32' });
      const model = shard(modelOf([float16, float32]), options);
      const seen = new Set<string>();
      (model.at(0) as Adapted).base.registerForwardPreHook((module, [x]) => {
        seen.add(`${(module as nn.Linear).weight.dtype.name} ${(x as Tensor).dtype.name}`);
      });
      (model.at(0) as Adapted).up.registerForwardPreHook((module) => {
        seen.add((module as nn.Linear).weight.dtype.name);
      });
      const found = await trained(model, [rank, 2]);
      assert.deepEqual([...seen], ['bfloat16 bfloat16', 'bfloat16']);
      for (const [name, p] of model.namedParameters())
        assert.equal(p.dtype.name, name.includes('base') ? 'float16' : 'float32');
      assertClose(found, await trained(modelOf([float32, float32]), [0, 1]), 0.06);
    }),
  );

  it(
    'gathers in one call, and reduces once for each dtype with gradients',
    withRanks(2, () => {
      for (const [isFrozen, reductions] of [
        [true, 1],
        [false, 2],
      ] as const) {
        const model = fullyShard(modelOf([bfloat16, float32], 5, isFrozen));
        const mode = new CommDebugMode();
        mode.run(() => (model(batchOf(0, 0, 1, 5)) as Tensor).square().mean().backward());
        const count = (kind: RegExp): number => mode.events.filter((e) => kind.test(e.kind)).length;
        assert.equal(count(/allGather/), 1);
        assert.equal(count(/reduceScatter/), reductions);
      }
    }),
  );

  it(
    'holds the dtypes that parts of a module are converted to between steps',
    withRanks(2, async (rank) => {
      const model = shard(modelOf([float32, float32]));
      await trained(model, [rank, 2], { steps: 1 });
      const alone = modelOf([float32, float32]);
      await trained(alone, [0, 1], { steps: 1 });
      for (const each of [model, alone])
        for (const layer of each.children()) (layer as Adapted).base.to(float64);
      const found = await trained(model, [rank, 2]);
      assertClose(found, await trained(alone, [0, 1]), 1e-4);
    }),
  );

  for (const backend of ['aot_eager', 'inductor'] as const)
    for (const isFrozen of [true, false])
      it(
        `trains a compiled model like an uncompiled one: ${backend}${isFrozen ? ', frozen' : ''}`,
        withRanks(2, async (rank) => {
          const dtypes = [bfloat16, float32] as const;
          const model = shard(modelOf(dtypes, 5, isFrozen));
          const run = compile(model, { backend, fullgraph: true }) as unknown as Run;
          const found = await trained(model, [rank, 2], { run });
          const expected = await trained(shard(modelOf(dtypes, 5, isFrozen)), [rank, 2]);
          assertClose(found, expected, isFrozen ? 2e-3 : 0.04);
        }),
      );

  it(
    'saves and loads checkpoints in the dtypes of the parameters',
    withRanks(2, async (rank) => {
      const dtypes = [bfloat16, float32] as const;
      const model = shard(modelOf(dtypes));
      const { values } = await trained(model, [rank, 2]);
      const folder = join(tmpdir(), `shardwise-dtypes-${process.pid}`);
      try {
        await distributedCheckpoint.save(folder, { model });
        const other = shard(modelOf(dtypes));
        await distributedCheckpoint.load(folder, { model: other });
        for (const [name, p] of other.namedParameters()) {
          assert.deepEqual(await wholeOf(p), values.get(name), name);
          assert.equal(p.dtype.name, name.includes('base') ? 'bfloat16' : 'float32');
        }
      } finally {
        if (rank === 0) rmSync(folder, { recursive: true, force: true });
      }
    }),
  );

  it(
    'trains alike on ranks that are processes',
    withRanks(
      2,
      async (rank) => {
        const { values } = await trained(shard(modelOf([float64, float32])), [rank, 2]);
        const { values: expected } = await trained(modelOf([float64, float32]), [0, 1]);
        const others = [...expected.values()].flat() as number[];
        [...values.values()].flat().forEach((value, i) => {
          assert.ok(Math.abs((value as number) - (others[i] as number)) < 1e-5);
        });
      },
      { mode: 'process', timeoutMs: 240_000 },
    ),
  );
});
