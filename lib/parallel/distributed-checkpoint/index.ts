/** The public API of distributed checkpoints. */
export {
  type DistributedCheckpoint,
  type DistributedLoadOptions,
  distributedCheckpoint,
} from './distributed-checkpoint.js';
export type { LoadedCheckpoint } from './load.js';
export type { CheckpointState, CheckpointValue, Stateful } from './state-entries.js';
