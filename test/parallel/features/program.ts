/** The training program of the matrix: on one device, and on each rank of a way to divide a model. */
import assert from 'node:assert/strict';
import {
  ColwiseParallel,
  type DeviceMesh,
  DistributedDataParallel,
  DTensor,
  FullyShardedDataParallel,
  type FullyShardOptions,
  fullyShard,
  initDeviceMesh,
  parallelizeModule,
  RowwiseParallel,
} from '../../../lib/distributed.js';
import {
  amp,
  compile,
  float64,
  manualSeed,
  type nn,
  noGrad,
  optim,
  randn,
  type Tensor,
} from '../../../lib/index.js';
import { utils } from '../../../lib/nn/index.js';
import { CompileCounterWithBackend } from '../../../lib/testing/index.js';
import { Block, type Features, Model, type State, valueOf, WIDTH } from './model.js';

const STEPS = 3;
const ROWS = 8;
/** The step whose gradients overflow on one rank. */
const OVERFLOW = 1;

/** A model as a rank trains it. */
interface Divided {
  readonly call: (x: Tensor) => State;
  readonly module: nn.AnyModule;
  /** Which part of the batch this rank has. */
  readonly part: { readonly index: number; readonly count: number };
  /** Runs a pass whose gradients are reduced with those of the next one. */
  readonly withoutReduction?: (run: () => void) => void;
  readonly clip?: (maxNorm: number) => void;
}

/** A way to divide a model among ranks. */
export interface Way {
  readonly ranks: number;
  readonly divide: (model: Model, rank: number) => Divided;
}

const callable = (module: nn.AnyModule): Divided['call'] => module as never;

const shard = (
  model: Model,
  options: FullyShardOptions = {},
): Pick<Divided, 'withoutReduction'> => {
  for (const block of model.blocks) fullyShard(block, options);
  const sharded = fullyShard(model, options);
  return {
    withoutReduction: (run) => {
      sharded.setRequiresGradientSync(false);
      run();
      sharded.setRequiresGradientSync(true);
    },
  };
};

const fullySharded = (options: FullyShardOptions): Way => ({
  ranks: 2,
  divide: (model, rank) => ({
    call: callable(model),
    module: model,
    part: { index: rank, count: 2 },
    ...shard(model, options),
  }),
});

const parallelize = (model: Model, mesh: DeviceMesh): void => {
  const column = ColwiseParallel();
  for (const block of model.blocks)
    parallelizeModule(block, mesh, { up: column, gate: column, down: RowwiseParallel() });
};

export const WAYS: Readonly<Record<string, Way>> = {
  DistributedDataParallel: {
    ranks: 2,
    divide(model, rank) {
      const module = new DistributedDataParallel<[x: Tensor], State>(model);
      return {
        call: callable(module),
        module: model,
        part: { index: rank, count: 2 },
        withoutReduction: (run) => module.noSync(run),
      };
    },
  },
  fullyShard: fullySharded({}),
  'fullyShard that keeps whole parameters': fullySharded({ reshardAfterForward: false }),
  FullyShardedDataParallel: {
    ranks: 2,
    divide(model, rank) {
      const module = new FullyShardedDataParallel(model, {
        autoWrapPolicy: (inner: nn.AnyModule) => inner instanceof Block,
        useOrigParams: true,
      });
      return {
        call: callable(module),
        module,
        part: { index: rank, count: 2 },
        withoutReduction: (run) => module.noSync(run),
        clip: (maxNorm) => void module.clipGradNorm_(maxNorm),
      };
    },
  },
  'tensor parallelism': {
    ranks: 2,
    divide(model) {
      parallelize(model, initDeviceMesh('cpu', [2]));
      return { call: callable(model), module: model, part: { index: 0, count: 1 } };
    },
  },
  'fullyShard with tensor parallelism': {
    ranks: 4,
    divide(model, rank) {
      const mesh = initDeviceMesh('cpu', [2, 2], { meshDimNames: ['dp', 'tp'] });
      parallelize(model, mesh.get('tp'));
      return {
        call: callable(model),
        module: model,
        part: { index: Math.floor(rank / 2), count: 2 },
        ...shard(model, { mesh: mesh.get('dp') }),
      };
    },
  },
};

const alone = (model: Model): Divided => ({
  call: callable(model),
  module: model,
  part: { index: 0, count: 1 },
});

/** The parameters after training on one device. */
export function trainAlone(features: Features): Map<string, Tensor> {
  const model = new Model(features);
  train(alone(model), features);
  return stateOf(model);
}

/** The parameters after training on the ranks of a way, whole. */
export function trainDivided(
  { divide }: Way,
  features: Features,
  rank: number,
  isCompiled: boolean,
): Map<string, Tensor> {
  const divided = divide(new Model(features), rank);
  const backend = CompileCounterWithBackend('inductor');
  const call = isCompiled ? compile(divided.call as never, { backend }) : divided.call;
  train({ ...divided, call }, features);
  assert.equal(backend.frameCount > 0, isCompiled, 'a graph was captured');
  return stateOf(divided.module);
}

function stateOf(module: nn.AnyModule): Map<string, Tensor> {
  const whole = (t: Tensor): Tensor => (t instanceof DTensor ? t.fullTensor() : t).detach();
  return new Map(Object.entries(module.stateDict()).map(([name, t]) => [name, whole(t)]));
}

function train(divided: Divided, features: Features): void {
  const { module, part } = divided;
  const optimizer = new optim.SGD(module.parameters(), { lr: 0.2, momentum: 0.9 });
  const enabled = features.has('a scaler');
  const scaler = new amp.GradScaler({ device: 'cpu', initScale: 8, growthInterval: 1, enabled });
  for (let step = 0; step < STEPS; step++) {
    const rows = rowsOf(step, part, features);
    const isOverflow = enabled && step === OVERFLOW && part.index === 0;
    const micro = features.has('accumulation') ? rows.chunk(2) : [rows];
    for (const [i, x] of micro.entries()) {
      const run = (): void => {
        const loss = lossOf(divided.call, x, features).div(micro.length);
        if (features.has('passes without gradients')) noGrad(() => divided.call(x.mul(0.25)));
        scaler.scale(isOverflow ? loss.mul(Infinity) : loss).backward();
      };
      if (i < micro.length - 1) (divided.withoutReduction ?? ((pass) => pass()))(run);
      else run();
    }
    scaler.unscale_(optimizer);
    if (features.has('clipping')) clip(divided, 0.05);
    scaler.step(optimizer);
    scaler.update();
    optimizer.zeroGrad();
  }
}

function rowsOf(step: number, { index, count }: Divided['part'], features: Features): Tensor {
  manualSeed(100 + step);
  const rows = features.has('several batch sizes') ? ROWS + 4 * step : ROWS;
  const all = randn([rows, WIDTH], { dtype: float64 });
  return all.narrow(0, (index * rows) / count, rows / count);
}

function lossOf(call: Divided['call'], x: Tensor, features: Features): Tensor {
  const scales = features.has('several passes') ? [1, 0.5, -1] : [1];
  return scales
    .map((scale) => {
      const result = valueOf(call(x.mul(scale)));
      if (features.has('hooks')) result.registerHook((grad) => grad.mul(0.5));
      return result.square().mean();
    })
    .reduce((a, b) => a.add(b));
}

function clip({ module, ...divided }: Divided, maxNorm: number): void {
  if (divided.clip !== undefined) divided.clip(maxNorm);
  else utils.clipGradNorm_(module.parameters(), maxNorm);
}
