/** Train steps in worlds that have one rank only, without values: graphs of any world in no time. */
import { FakeTensorMode } from '../../../lib/compile/index.js';
import {
  type DeviceMesh,
  DTensor,
  destroyProcessGroup,
  initDeviceMesh,
  initProcessGroup,
  Replicate,
  Shard,
} from '../../../lib/distributed.js';
import { nn, noGrad, optim, randn, type Tensor } from '../../../lib/index.js';
import { compile, type StepModule, type StepTransformation } from '../../../lib/spmd/index.js';

export type Model = nn.Module<[x: Tensor], Tensor>;
export type Step = (model: Model, optimizer: optim.Adam, batch: Tensor) => void;

export interface FakeStep {
  readonly worldSize: number;
  readonly layers: number;
  readonly dim: number;
  readonly batchSize: number;
  readonly device?: 'cpu' | 'cuda';
}

export function modelOf(layers: number, dim: number): Model {
  const modules: nn.Module[] = [];
  for (let i = 0; i < layers; i++) modules.push(new nn.Linear(dim, dim), new nn.ReLU());
  return new nn.Sequential(...(modules as never[])) as unknown as Model;
}

export const trainStep: Step = (model, optimizer, batch) => {
  model(batch).sum().backward();
  optimizer.step();
  optimizer.zeroGrad();
};

export const adamOf = (model: Model): optim.Adam =>
  new optim.Adam(model.parameters(), { capturable: true, fused: true, foreach: false });

/**
 * Shards the weights of layers along the last mesh dim, by columns and by rows in turns, and the bias
 * of the former.
 */
export function shardInTurns(
  model: Model,
  ranks: number,
  mesh: DeviceMesh = initDeviceMesh('cpu', [ranks], { meshDimNames: ['ranks'] }),
): void {
  const others = Array.from({ length: mesh.ndim - 1 }, () => Replicate());
  [...model.namedParameters()].forEach(([name, p], i) => {
    const isByColumns = i % 4 < 2;
    const isWeight = name.endsWith('weight');
    const placement = isByColumns ? Shard(0) : isWeight ? Shard(1) : Replicate();
    const layer = model.getSubmodule(name.split('.')[0] as string) as nn.Linear;
    const sharded = noGrad(() =>
      DTensor.fromLocal(p.detach(), mesh, [...others, Replicate()]).redistribute([
        ...others,
        placement,
      ]),
    );
    layer[isWeight ? 'weight' : 'bias'] = new nn.Parameter(sharded) as never;
  });
}

/** Runs `fn` as a rank of a world without other ranks, on tensors without values. */
export async function inFakeWorld<T>(worldSize: number, fn: () => T): Promise<T> {
  await initProcessGroup('fake', { rank: 0, worldSize });
  try {
    return new FakeTensorMode().run(fn);
  } finally {
    destroyProcessGroup();
  }
}

/** Captures the step, and takes it once. */
export function takeFakeStep(
  { worldSize, layers, dim, batchSize, device = 'cpu' }: FakeStep,
  gmTransformation: StepTransformation,
): Promise<void> {
  return inFakeWorld(worldSize, () => {
    const model = modelOf(layers, dim).to(device);
    const step = compile({ gmTransformation })(trainStep);
    step(model, adamOf(model), randn([batchSize, dim], { device }), { lastTrainStep: true });
  });
}

export type { StepModule };
