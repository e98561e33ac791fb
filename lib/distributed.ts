/** The entry `shardwise/distributed`, for programs of several ranks. */
import './runtime-distributed.js';
import { declareExports } from './core/library-exports.js';
import * as entry from './distributed.js';

export type { Stateful } from './checkpoint/state/paths.js';
export type { CheckpointState, CheckpointValue } from './checkpoint/state/values.js';
export * from './core/absent-names/distributed.js';
export {
  type CollectiveDetails,
  CollectiveError,
  DistributedError,
  ShardingError,
  StoreError,
  TimeoutError,
} from './core/errors.js';
export * from './distributed/index.js';
export * from './dtensor/index.js';
export * from './parallel/index.js';

declareExports(entry);
