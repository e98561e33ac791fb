/** What is public of meshes: process groups, collectives, stores, launching. */

export { batchIsendIrecv, P2POp } from './batched-messages.js';
export type { Async, CollectiveOptions, Sync } from './collective-operands.js';
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
} from './collectives.js';
export { getCurrentMesh } from './current-mesh.js';
export { DeviceMesh, type DeviceMeshConstructor, initDeviceMesh } from './device-mesh.js';
export type { BackendName, BackendText } from './engines/engine.js';
export { getBackend, getGlobalRank, getGroupRank, getProcessGroupRanks } from './group-queries.js';
export {
  destroyProcessGroup,
  getRank,
  getWorldSize,
  isInitialized,
  newGroup,
  worldGroup,
} from './groups.js';
export { type InitOptions, initProcessGroup, isAvailable } from './init.js';
export { type LaunchOptions, launch } from './launch.js';
export type { RankFunction } from './local-ranks.js';
export type { DeviceMeshOptions, FromGroupOptions } from './mesh-plan.js';
export { irecv, isend, recv, send } from './messages.js';
export {
  allGatherObject,
  broadcastObjectList,
  type GatherObjectOptions,
  gatherObject,
  type ObjectOptions,
  type ScatterObjectOptions,
  scatterObjectList,
} from './objects.js';
export type { ProcessGroup } from './process-group.js';
export type { RankFault } from './rank-faults.js';
export {
  FileStore,
  HashStore,
  PrefixStore,
  Store,
  type StoreValue,
  TCPStore,
  type TCPStoreOptions,
} from './stores/index.js';
export type { Work } from './work.js';
