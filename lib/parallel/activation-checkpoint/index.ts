/** Activation checkpointing: recomputes activations in backward instead of keeping them. */
export { type CheckpointContext, type CheckpointOptions, checkpoint } from './checkpoint.js';
export {
  type ActivationCheckpointingOptions,
  applyActivationCheckpointing,
  CheckpointImpl,
  type CheckpointImplName,
  type CheckpointWrapped,
  type CheckpointWrapperOptions,
  checkpointWrapper,
} from './checkpoint-wrapper.js';
export {
  CheckpointPolicy,
  type CheckpointPolicyName,
  createSelectiveCheckpointContexts,
  type SelectiveCheckpointContext,
  type SelectiveCheckpointOptions,
  type SelectiveCheckpointPolicy,
} from './selective.js';
