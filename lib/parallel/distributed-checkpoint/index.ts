/** The public API of distributed checkpoints. */
export { Checkpointer, type CheckpointerOptions } from './checkpointer.js';
export {
  type DistributedCheckpoint,
  type DistributedLoadOptions,
  type DistributedSaveOptions,
  distributedCheckpoint,
} from './distributed-checkpoint.js';
export {
  type HuggingFaceLoaded,
  type HuggingFaceLoadOptions,
  type HuggingFaceSaveOptions,
  loadHuggingFace,
  saveHuggingFace,
} from './hugging-face.js';
export type { LoadedCheckpoint } from './load.js';
export type { PendingSave } from './pending-saves.js';
export type { CheckpointState, CheckpointValue, Stateful } from './state-entries.js';
