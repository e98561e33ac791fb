/** What a group of parameters is doing, and where its parameters are. */

/**
 * The part of a training step in which a group is.
 *
 * @see PyTorch `torch.distributed.fsdp._fully_shard._fsdp_common.TrainingState`
 */
export const TrainingState = Object.freeze({
  IDLE: 'IDLE',
  FORWARD: 'FORWARD',
  PRE_BACKWARD: 'PRE_BACKWARD',
  POST_BACKWARD: 'POST_BACKWARD',
} as const);

/** A value of {@link TrainingState}. */
export type TrainingStateName = (typeof TrainingState)[keyof typeof TrainingState];

/**
 * Where the parameters of a group are: each rank holds its shard, or all of them, or the shard of
 * the smaller group that holds them between forward and backward.
 */
export type ShardedStateName = 'SHARDED' | 'UNSHARDED' | 'SHARDED_POST_FORWARD';
