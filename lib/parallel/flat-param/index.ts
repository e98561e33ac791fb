/** Fully sharded data parallelism by flat parameters. */
export type { FlatParameter } from './flat-entries.js';
export type { FSDPOptions } from './fsdp-options.js';
export { FullyShardedDataParallel, type SummonOptions } from './fully-sharded-data-parallel.js';
export { FlatParamHandle, type FlatParamHandleOptions } from './handle.js';
export { FlatParamShardMetadata, type ShardParamInfo } from './layout.js';
export {
  BackwardPrefetch,
  type BackwardPrefetchName,
  CPUOffload,
  HandleShardingStrategy,
  MixedPrecision,
  type MixedPrecisionSettings,
  ShardingStrategy,
  type ShardingStrategyName,
} from './strategies.js';
