/** The public names of process groups, collectives, meshes, stores and launching. */

export { withCallSite } from '../core/call-context.js';
export { markDataParallel } from '../core/data-parallel-modules.js';
export { markGradientShard } from '../core/gradient-shards.js';
export type { DeviceMeshOptions, FromGroupOptions } from './device-mesh/checks.js';
export {
  DeviceMesh,
  type DeviceMeshConstructor,
  initDeviceMesh,
} from './device-mesh/create-mesh.js';
export { getCurrentMesh } from './device-mesh/device-mesh.js';
export type { BackendName, BackendText } from './engines/engine.js';
export type { InitOptions } from './launch/init-options.js';
export { initProcessGroup, isAvailable } from './launch/init-process-group.js';
export { type LaunchOptions, launch } from './launch/launch.js';
export type { RankFault } from './local-ranks/fault-injection.js';
export type { RankFunction } from './local-ranks/run.js';
export { allToAll, allToAllSingle, type SplitOptions } from './process-group/all-to-all.js';
export { batchIsendIrecv, P2POp } from './process-group/batch-isend-irecv.js';
export {
  allGatherIntoTensorCoalesced,
  reduceScatterTensorCoalesced,
} from './process-group/coalesced.js';
export {
  allGather,
  allGatherIntoTensor,
  allReduce,
  barrier,
  broadcast,
  ReduceOp,
  type ReduceOptions,
  reduce,
  reduceScatter,
  reduceScatterTensor,
} from './process-group/collectives.js';
export {
  type GatherOptions,
  gather,
  type ScatterOptions,
  scatter,
} from './process-group/gather-scatter.js';
export {
  destroyProcessGroup,
  getBackend,
  getGlobalRank,
  getGroupRank,
  getProcessGroupRanks,
  getRank,
  getWorldSize,
  isInitialized,
  newGroup,
  worldGroup,
} from './process-group/new-group.js';
export {
  allGatherObject,
  broadcastObjectList,
  type GatherObjectOptions,
  gatherObject,
  type ObjectOptions,
  type ScatterObjectOptions,
  scatterObjectList,
} from './process-group/object-collectives.js';
export type { Async, CollectiveOptions, Sync } from './process-group/operands.js';
export { irecv, isend, recv, send } from './process-group/point-to-point.js';
export type { ProcessGroup } from './process-group/process-group.js';
export { withPurpose } from './process-group/purpose.js';
export type { Work } from './process-group/work.js';
export {
  FileStore,
  HashStore,
  PrefixStore,
  Store,
  type StoreValue,
  TCPStore,
  type TCPStoreOptions,
} from './stores/index.js';
