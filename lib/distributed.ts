/** The entry `shardwise/distributed`: what programs of several ranks use. */
import './runtime-distributed.js';

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
