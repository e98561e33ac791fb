/**
 * Data and tensor parallelism of the example: `tp` ranks shard a model, and `dp` such groups split
 * each batch. Every rank runs the same program, and losses equal those of one rank.
 */
import {
  allReduce,
  ColwiseParallel,
  type DeviceMesh,
  DistributedDataParallel,
  DTensor,
  fullyShard,
  initDeviceMesh,
  lossParallel,
  type ParallelizePlan,
  parallelizeModule,
  RowwiseParallel,
} from '../../lib/distributed.js';
import { crossEntropy, type DeviceName, noGrad, type Tensor } from '../../lib/index.js';
import type { Gpt } from './model.js';
import type { Parallel } from './options.js';

/** Number of ranks that split the batch, and that shard the model. */
export interface MeshSizes {
  readonly dp: number;
  readonly tp: number;
}

/**
 * Heads, the wide dim of the feed-forward blocks and the vocabulary are cut; norms and positions
 * stay whole on each rank.
 */
const plan: ParallelizePlan = {
  tokens: RowwiseParallel(),
  'blocks.*.attention.qkv': ColwiseParallel(),
  'blocks.*.attention.proj': RowwiseParallel(),
  'blocks.*.mlp.0': ColwiseParallel(),
  'blocks.*.mlp.2': RowwiseParallel(),
  head: ColwiseParallel({ useLocalOutput: false }),
};

/** Tokens `[B, T]` to logits `[B, T, V]`. */
export type Callable = (tokens: Tensor) => Tensor;

/** The role of a rank. */
export interface Share {
  readonly rank: number;
  /** The one rank that prints and writes files. */
  readonly isFirst: boolean;
  /** Index of its share of each batch, and the number of equal shares. */
  readonly part: number;
  readonly parts: number;
  readonly device: DeviceName;
  /** Shards the model. Returns what training calls: the model, or one that averages gradients. */
  cut(model: Gpt): Callable;
  /** Mean over the shares of a batch, in place. */
  average(t: Tensor): void;
  /** Whether backward averages gradients by itself. */
  readonly averagesGradients: boolean;
}

/** A job of one rank. */
export function alone(device: DeviceName): Share {
  const nothing = (): void => {};
  return {
    rank: 0,
    isFirst: true,
    part: 0,
    parts: 1,
    device,
    cut: (model) => model,
    average: nothing,
    averagesGradients: true,
  };
}

/** The role of this rank among several; all ranks call it. */
export function shared({ dp, tp }: MeshSizes, parallel: Parallel, device: DeviceName): Share {
  const type = device === 'cpu' ? 'cpu' : 'cuda';
  const mesh = initDeviceMesh(type, [dp, tp], { meshDimNames: ['dp', 'tp'] });
  const group = mesh.getGroup('dp');
  return {
    rank: mesh.getRank(),
    isFirst: mesh.getRank() === 0,
    part: mesh.getLocalRank('dp'),
    parts: dp,
    device: type === 'cpu' ? 'cpu' : `cuda:${mesh.getRank()}`,
    cut: (model) => cutModel(model, mesh, parallel),
    average: (t) => {
      if (dp > 1) allReduce(t, { op: 'avg', group });
    },
    averagesGradients: parallel !== 'ddp' || usesDdp(mesh, parallel),
  };
}

function cutModel(model: Gpt, mesh: DeviceMesh, parallel: Parallel): Callable {
  if (mesh.size('tp') > 1) parallelizeModule(model, mesh.get('tp'), plan);
  if (parallel !== 'ddp') {
    for (const block of model.blocks) fullyShard(block, { mesh: mesh.get('dp') });
    fullyShard(model, { mesh: mesh.get('dp') });
  }
  return usesDdp(mesh, parallel)
    ? new DistributedDataParallel(model, { processGroup: mesh.getGroup('dp') })
    : model;
}

/** Whether every rank holds the whole model. */
const usesDdp = (mesh: DeviceMesh, parallel: Parallel): boolean =>
  parallel === 'ddp' && mesh.size('tp') === 1;

/** The whole tensor as a plain one; for a distributed tensor, all of its ranks call it. */
export function whole(t: Tensor): Tensor {
  return t instanceof DTensor ? t.fullTensor() : t;
}

/** Mean loss of a batch; logits may be sharded along the classes. */
export function lossOf(model: Callable, [inputs, targets]: [Tensor, Tensor]): Tensor {
  return lossParallel(() => crossEntropy(model(inputs).flatten(0, 1), targets.reshape(-1)));
}

/** Averages the gradients of the shares of a batch. */
export function averageGradients(model: Gpt, share: Share): void {
  if (share.averagesGradients) return;
  noGrad(() => {
    for (const { grad } of model.parameters())
      if (grad !== null) share.average(grad instanceof DTensor ? grad.toLocal() : grad);
  });
}
