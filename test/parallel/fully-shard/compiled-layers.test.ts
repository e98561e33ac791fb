/** Layers that are compiled and sharded: one graph of each forward, in either order of the calls. */
import assert from 'node:assert/strict';
import {
  applyActivationCheckpointing,
  checkpoint,
  fullyShard,
  getRank,
  initDeviceMesh,
  MixedPrecisionPolicy,
} from '../../../lib/distributed.js';
import {
  compile,
  manualSeed,
  memory,
  nn,
  optim,
  randn,
  scope,
  type Tensor,
} from '../../../lib/index.js';
import { CompileCounterWithBackend } from '../../../lib/testing/index.js';
import { onRanks } from '../../distributed/support/on-ranks.js';
import { type Values, valuesOf } from './model.js';

class Block extends nn.Module {
  norm = new nn.LayerNorm(8);
  up = new nn.Linear(8, 12);
  drop = new nn.Dropout(0.25);
  down = new nn.Linear(12, 8);
  forward(x: Tensor): Tensor {
    return x.add(this.down(this.drop(this.up(this.norm(x)).gelu())));
  }
}

/** Both weights of the block are one parameter. */
class TiedBlock extends Block {
  constructor() {
    super();
    this.up = new nn.Linear(8, 8);
    this.down = new nn.Linear(8, 8);
    this.down.weight = this.up.weight;
  }
}

class Blocks extends nn.Module {
  first = new nn.Linear(4, 8);
  layers: nn.ModuleList<Block>;
  last = new nn.Linear(8, 3);
  /** Whether backward runs each layer again, with its hooks. */
  again = false;
  constructor(Of: new () => Block) {
    super();
    this.layers = new nn.ModuleList([new Of(), new Of(), new Of()]);
  }
  forward(x: Tensor): Tensor {
    let y = this.first(x);
    for (const layer of this.layers) y = this.again ? checkpoint(layer, y) : layer(y);
    return this.last(y);
  }
}

type Compiled = 'before fullyShard' | 'after fullyShard' | 'as a whole' | null;
type Backend = 'eager' | 'aot_eager' | 'inductor';

interface Setting {
  readonly compiled: Compiled;
  readonly backend?: Backend;
  readonly options?: Parameters<typeof fullyShard>[1];
  readonly prefetch?: boolean;
  readonly checkpoint?: boolean;
  readonly again?: boolean;
  readonly passes?: number;
  readonly block?: new () => Block;
  /** Number of ranks that keep replicas. */
  readonly replicas?: number;
}

interface Run {
  readonly losses: number[];
  readonly values: Values;
  /** Captures after each step. */
  readonly captures: number[];
}

const STEPS = 4;

/** A model, its layers sharded and compiled. */
function modelOf(setting: Setting, backend: ReturnType<typeof CompileCounterWithBackend>) {
  const { compiled, options = {}, prefetch = false, block = Block } = setting;
  manualSeed(1);
  const model = new Blocks(block);
  model.again = setting.again ?? false;
  const own = new Set<nn.AnyModule>(model.layers);
  if (setting.checkpoint)
    applyActivationCheckpointing(model, { checkFn: (module) => own.has(module) });
  const settings = { backend, fullgraph: true };
  const layers = [...model.layers].map((layer) => {
    if (compiled === 'before fullyShard') layer.compile(settings);
    const sharded = fullyShard(layer, options);
    if (compiled === 'after fullyShard') layer.compile(settings);
    return sharded;
  });
  fullyShard(model, options);
  if (prefetch)
    for (const [i, layer] of layers.entries()) {
      layer.setModulesToForwardPrefetch(layers.slice(i + 1, i + 3));
      layer.setModulesToBackwardPrefetch(layers.slice(Math.max(0, i - 2), i).reverse());
    }
  const run = compiled === 'as a whole' ? compile(model, { backend }) : model;
  return { model, run };
}

async function trained(setting: Setting): Promise<Run> {
  const backend = CompileCounterWithBackend(setting.backend ?? 'aot_eager');
  const { model, run } = modelOf(setting, backend);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 0.05 });
  const { passes = 1 } = setting;
  const [losses, captures]: [number[], number[]] = [[], []];
  manualSeed(2 + getRank());
  for (let step = 0; step < STEPS; step++) {
    for (let pass = 0; pass < passes; pass++) {
      if (passes > 1) (model as never as Accumulates).setRequiresGradientSync(pass === passes - 1);
      const loss = run(randn([5, 4]))
        .square()
        .mean();
      loss.backward();
      losses.push(Number(await loss.itemAsync()));
    }
    optimizer.step();
    optimizer.zeroGrad();
    captures.push(backend.frameCount);
  }
  return { losses, values: await valuesOf(model), captures };
}

type Accumulates = { setRequiresGradientSync(value: boolean): void };

/** Compares with an uncompiled run, bit for bit. `captures`: how many the first step makes. */
async function assertEqualToUncompiled(setting: Setting, captures: number): Promise<void> {
  const expected = await trained({ ...setting, compiled: null });
  const found = await trained(setting);
  assert.deepEqual(found.losses, expected.losses);
  assert.deepEqual(found.values, expected.values);
  assert.deepEqual(
    found.captures,
    found.captures.map(() => captures),
  );
}

/** Bytes at the peak of the third forward and backward of wide blocks on one rank. */
async function peakOf(backend: Backend | null): Promise<number> {
  const options = { mpPolicy };
  const blocks = Array.from({ length: 4 }, () => {
    const block = new nn.Sequential(
      new nn.Linear(128, 512),
      new nn.GELU(),
      new nn.Linear(512, 128),
    );
    if (backend !== null) block.compile({ backend });
    return fullyShard(block, options);
  });
  const model = fullyShard(new nn.Sequential(...blocks), options);
  let peak = 0;
  for (let step = 0; step < 3; step++) {
    memory.collect(); // garbage of other tests, which may be freed in between
    memory.resetPeak('cpu');
    const before = memory.stats('cpu').allocatedBytes;
    const loss = scope(() => {
      const value = model(randn([256, 128]))
        .square()
        .mean();
      value.backward();
      return value.detach();
    });
    await loss.read();
    peak = memory.stats('cpu').peakAllocatedBytes - before;
    for (const p of model.parameters()) p.grad = null;
  }
  return peak;
}

const ORDERS = ['before fullyShard', 'after fullyShard'] as const;
const mpPolicy = new MixedPrecisionPolicy({ paramDtype: 'bfloat16', reduceDtype: 'float32' });

const SETTINGS: Record<string, Omit<Setting, 'compiled'>> = {
  'default options': {},
  'reshardAfterForward: false': { options: { reshardAfterForward: false } },
  'mixed precision': { options: { mpPolicy } },
  prefetching: { prefetch: true },
  'activation checkpoints': { checkpoint: true },
  'accumulated gradients': { passes: 3 },
  'tied parameters': { block: TiedBlock },
  'all of them': {
    options: { mpPolicy, reshardAfterForward: false },
    prefetch: true,
    checkpoint: true,
    passes: 2,
    block: TiedBlock,
  },
};

describe('layers that are compiled and fullySharded', () => {
  for (const compiled of ORDERS)
    for (const [name, setting] of Object.entries(SETTINGS))
      it(`train as uncompiled ones, compiled ${compiled}, with ${name}`, async () => {
        // Passes that accumulate and passes that reduce are other graphs.
        const graphs = setting.passes === undefined ? 3 : 6;
        await onRanks(2, () => assertEqualToUncompiled({ ...setting, compiled }, graphs));
      });

  for (const backend of ['eager', 'inductor'] as const)
    it(`train as uncompiled ones with backend ${backend}`, async () => {
      await onRanks(2, () =>
        assertEqualToUncompiled({ ...SETTINGS['all of them'], backend, compiled: ORDERS[0] }, 6),
      );
    });

  for (const ranks of [1, 3, 4])
    it(`train as uncompiled ones on ${ranks} ranks`, async () => {
      await onRanks(ranks, () => assertEqualToUncompiled({ compiled: ORDERS[0] }, 3));
    });

  it('train as uncompiled ones in checkpoints around them', async () => {
    await onRanks(2, async () => {
      const setting = { again: true } as const;
      const expected = await trained({ ...setting, compiled: null });
      const found = await trained({ ...setting, compiled: ORDERS[0] });
      assert.deepEqual(found.losses, expected.losses);
      assert.deepEqual(found.values, expected.values);
      assert.equal(found.captures.at(-1), found.captures[0]);
    });
  });

  it('train as uncompiled ones where some ranks keep replicas', async () => {
    await onRanks(4, async () => {
      const mesh = initDeviceMesh('cpu', [2, 2], { meshDimNames: ['replicate', 'shard'] });
      await assertEqualToUncompiled({ compiled: ORDERS[0], options: { mesh } }, 3);
    });
  });

  it('have no higher peaks than uncompiled ones', async () => {
    await onRanks(1, async () => {
      const uncompiled = await peakOf(null);
      for (const backend of ['aot_eager', 'inductor'] as const)
        assert.ok((await peakOf(backend)) <= uncompiled, backend);
    });
  });

  it('train as uncompiled ones in a model that is compiled as a whole', async () => {
    await onRanks(2, () => assertEqualToUncompiled({ compiled: 'as a whole' }, 1));
  });
});
