/** The entry `shardwise/distributed`: what programs of several ranks use. */
import './runtime.js';

export { CollectiveError, DistributedError, StoreError, TimeoutError } from './core/errors.js';
export { Partial, Placement, type ReduceOpName, Replicate, Shard } from './core/placement.js';
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
export type { BackendName } from './mesh/engines/engine.js';
export { destroyProcessGroup, getRank, getWorldSize, isInitialized, newGroup, worldGroup } from './mesh/groups.js';
export { irecv, isend, recv, send } from './mesh/messages.js';
export {
  allGatherObject,
  broadcastObjectList,
  type GatherObjectOptions,
  gatherObject,
  type ObjectOptions,
  type ScatterObjectOptions,
  scatterObjectList,
} from './mesh/objects.js';
export type { ProcessGroup } from './mesh/process-group.js';
export { FileStore, HashStore, PrefixStore, Store, type StoreValue, TCPStore, type TCPStoreOptions } from './mesh/stores/index.js';
export type { Work } from './mesh/work.js';
