/** Features of distributed tensors and parallel training, on a world without peers. */
import {
  allGatherIntoTensor,
  allReduce,
  barrier,
  broadcast,
  type CheckpointContext,
  ColwiseParallel,
  checkpoint,
  createSelectiveCheckpointContexts,
  DistributedDataParallel,
  DTensor,
  destroyProcessGroup,
  distributeTensor,
  FullyShardedDataParallel,
  fullyShard,
  functional,
  initDeviceMesh,
  initProcessGroup,
  parallelizeModule,
  Replicate,
  RowwiseParallel,
  reduceScatterTensor,
  Shard,
} from '../../lib/distributed.js';
import { nn, ones, type Tensor, zeros } from '../../lib/index.js';
import type { Feature, Program } from './features.js';

const given =
  (body: (x: Tensor) => unknown): Program =>
  () =>
    body;

const onMesh =
  (body: (x: DTensor) => unknown): Program =>
  () => {
    const mesh = initDeviceMesh('cpu', [2]);
    return (x) => body(DTensor.fromLocal(x, mesh, [Shard(0)]));
  };

const model =
  (wrap: (m: nn.Sequential) => unknown): Program =>
  () => {
    const wrapped = wrap(new nn.Sequential(new nn.Linear(2, 4), new nn.Linear(4, 2)));
    return (x) => (wrapped as (t: Tensor) => unknown)(x.reshape([1, 2]));
  };

const keepsProducts = () => createSelectiveCheckpointContexts(['matmul']);
const plainContexts = (): [CheckpointContext, CheckpointContext] => [(fn) => fn(), (fn) => fn()];

/** Runs `fn` as a rank of a world of two. */
export async function inFakeWorld(fn: () => void): Promise<void> {
  await initProcessGroup('fake', { rank: 0, worldSize: 2 });
  try {
    fn();
  } finally {
    destroyProcessGroup();
  }
}

export const distributedFeatures: readonly Feature[] = [
  {
    what: '`DTensor`: `fromLocal`, `toLocal`, `redistribute`, `fullTensor`, ops, gradients',
    programs: [
      onMesh((x) => x.mul(2).toLocal()),
      onMesh((x) => x.redistribute([Replicate()]).toLocal()),
      onMesh((x) => x.sum().redistribute([Replicate()]).toLocal()),
      onMesh((x) => x.fullTensor()),
      onMesh((x) =>
        x
          .redistribute([Replicate()])
          .redistribute([Shard(0)])
          .toLocal(),
      ),
    ],
  },
  {
    what: '`distributeTensor`, the constructor of `DTensor`',
    programs: [
      () => {
        const mesh = initDeviceMesh('cpu', [2]);
        return (x) => (distributeTensor(x.detach(), mesh, [Shard(0)]) as DTensor).toLocal();
      },
      () => {
        const mesh = initDeviceMesh('cpu', [2]);
        const { _spec } = DTensor.fromLocal(ones([2]), mesh, [Shard(0)]);
        return (x) => new DTensor(x.detach(), _spec, { requiresGrad: false }).toLocal();
      },
    ],
    instead: 'distribute outside, or `DTensor.fromLocal`',
  },
  {
    what: 'functional collectives, and waiting for them',
    programs: [
      given((x) => functional.allReduce(x, 'sum').mul(2)),
      given((x) => functional.allGatherTensor(x, 0).mul(2)),
      given((x) => functional.reduceScatterTensor(x, 'sum', 0).mul(2)),
      given((x) => functional.allToAllSingle(x, null, null).mul(2)),
      given((x) => functional.broadcast(x, 0).mul(2)),
    ],
  },
  {
    what: 'collectives in place, `barrier`, sends',
    programs: [
      given((x) => (allReduce(x.detach()), x.mul(2))),
      given((x) => (broadcast(x.detach(), 0), x.mul(2))),
      given((x) => (allGatherIntoTensor(zeros([4]), x.detach()), x.mul(2))),
      given((x) => (reduceScatterTensor(zeros([1]), x.detach()), x.mul(2))),
      given((x) => (barrier(), x.mul(2))),
    ],
    instead: 'functional collectives',
  },
  {
    what: 'modules of `parallelizeModule`',
    programs: [
      model((m) => {
        const mesh = initDeviceMesh('cpu', [2]);
        return parallelizeModule(m, mesh, { '0': ColwiseParallel(), '1': RowwiseParallel() });
      }),
    ],
  },
  {
    what: '`checkpoint`: of modules, nested, selective',
    programs: [
      model((m) => (x: Tensor) => checkpoint(m, x)),
      model((m) => (x: Tensor) => checkpoint((t: Tensor) => checkpoint(m, t.sin()), x)),
      model((m) => (x: Tensor) => checkpoint(m, x, { contextFn: keepsProducts })),
    ],
  },
  {
    what: '`checkpoint` that draws with `preserveRngState: false`, changes other tensors, or has other contexts',
    programs: [
      given((x) => checkpoint((t: Tensor) => t.dropout(0.5), x, { preserveRngState: false })),
      () => {
        const count = zeros([1]);
        return (x) => checkpoint((t: Tensor) => (count.add_(1), t.exp().sin()), x);
      },
      given((x) => checkpoint((t: Tensor) => t.exp().sin(), x, { contextFn: plainContexts })),
    ],
    instead: 'return what it computes, and change tensors outside',
  },
  {
    what: '`fullyShard`: of a model, of its layers, with frozen layers',
    programs: [
      model((m) => fullyShard(m)),
      model((m) => {
        for (const layer of m) fullyShard(layer);
        return fullyShard(m);
      }),
      model((m) => {
        for (const p of (m as nn.AnyModule).parameters()) p.requiresGrad_(false);
        return fullyShard(m);
      }),
    ],
  },
  {
    what: '`DistributedDataParallel`, `FullyShardedDataParallel`',
    programs: [
      model((m) => new DistributedDataParallel(m)),
      model((m) => new FullyShardedDataParallel(m)),
    ],
  },
];
