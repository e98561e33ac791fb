/** The public API of distributed tensors. */

export { Partial, Placement, type ReduceOpName, Replicate, Shard } from '../core/placement.js';
export { AsyncCollectiveTensor, waitTensor } from './async-collective-tensor.js';
export {
  CommDebugMode,
  type CommEvent,
  type CommTraffic,
  type MeshDimTraffic,
  type TotalTraffic,
} from './debug/comm-debug-mode.js';
export { type VisualizeOptions, visualizeSharding } from './debug/visualize-sharding.js';
export {
  type DistributeOptions,
  DTensor,
  distributeTensor,
  type FromLocalOptions,
} from './dtensor.js';
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
} from './factories.js';
export {
  type CollectiveRanks,
  functional,
  type GatherTensorOptions,
} from './functional-collectives.js';
export { type LocalMapOptions, type LocalMapPlacements, localMap } from './local-map.js';
export { computeLocalShapeAndGlobalOffset, type ShardRegion } from './local-shape.js';
export { lossParallel } from './loss-parallel.js';
export { explicitRedistribution } from './redistribute/policy.js';
export { DTensorSpec, type DTensorSpecOptions, type ShardOrder, TensorMeta } from './spec/spec.js';
export type { RedistributeOptions, ToLocalOptions } from './tensor-methods.js';
export type { UnevenOptions } from './uneven.js';
