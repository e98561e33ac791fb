/** The public API of distributed checkpoints. */

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
export type { LoadedCheckpoint } from './load/load.js';
export { Checkpointer, type CheckpointerOptions } from './runs/checkpointer.js';
export type { PendingSave } from './save/pending-saves.js';
