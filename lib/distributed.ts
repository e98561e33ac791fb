/** The entry `shardwise/distributed`: what programs of several ranks use. */
import './runtime.js';
import { installDTensor } from './core/dispatch.js';
import { dtensorLayer } from './dtensor/dtensor-layer.js';

installDTensor(dtensorLayer);

export { CollectiveError, DistributedError, ShardingError, StoreError, TimeoutError } from './core/errors.js';
export { Partial, Placement, type ReduceOpName, Replicate, Shard } from './core/placement.js';
export { type DistributeOptions, DTensor, distributeTensor, type FromLocalOptions } from './dtensor/dtensor.js';
export {
  type DTensorOptions,
  type DTensorRandomOptions,
  dtensorArange,
  dtensorEmpty,
  dtensorFull,
  dtensorLinspace,
  dtensorOnes,
  dtensorRand,
  dtensorRandint,
  dtensorRandn,
  dtensorZeros,
} from './dtensor/factories.js';
export type { RedistributeOptions, ToLocalOptions } from './dtensor/members.js';
export { explicitRedistribution } from './dtensor/redistribution.js';
export { DTensorSpec, type DTensorSpecOptions, type ShardOrder, type TensorMeta } from './dtensor/spec.js';
export type { UnevenOptions } from './dtensor/uneven.js';
export type { Async, CollectiveOptions, Sync } from './mesh/collective-operands.js';
export {
  allGather,
  allGatherIntoTensor,
  allReduce,
  allToAll,
  allToAllSingle,
  barrier,
  broadcast,
  type GatherOptions,
  gather,
  ReduceOp,
  type ReduceOptions,
  reduce,
  reduceScatter,
  reduceScatterTensor,
  type ScatterOptions,
  type SplitOptions,
  scatter,
} from './mesh/collectives.js';
export { DeviceMesh, type DeviceMeshConstructor, type DeviceMeshOptions, type FromGroupOptions, initDeviceMesh } from './mesh/device-mesh.js';
export type { BackendName } from './mesh/engines/engine.js';
export { destroyProcessGroup, getRank, getWorldSize, isInitialized, newGroup, worldGroup } from './mesh/groups.js';
export { irecv, isend, recv, send } from './mesh/messages.js';
export type { ProcessGroup } from './mesh/process-group.js';
export { FileStore, HashStore, PrefixStore, Store, type StoreValue, TCPStore, type TCPStoreOptions } from './mesh/stores/index.js';
export type { Work } from './mesh/work.js';
