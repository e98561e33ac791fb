/** Fully sharded data parallelism by parameter. */
export type { FSDPModule, RecurseOptions, UnshardHandle } from './fsdp-module.js';
export { type FullyShardOptions, fullyShard } from './fully-shard.js';
export { FSDPParamGroup } from './param-group.js';
export {
  CPUOffloadPolicy,
  type MixedPrecisionOptions,
  MixedPrecisionPolicy,
  OffloadPolicy,
} from './policies.js';
export { type ShardedStateName, TrainingState, type TrainingStateName } from './training-state.js';
