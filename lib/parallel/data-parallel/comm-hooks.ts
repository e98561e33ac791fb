/** How the gradients of a bucket are reduced. */
import { allReduce, type ProcessGroup } from '../../distributed/index.js';
import { bfloat16, type DType, float16, type Tensor } from '../../index.js';
import type { GradBucket } from './buckets.js';

/**
 * Averages the gradients of a bucket over the ranks, in its buffer or in a tensor of as many
 * elements, and returns that. It must not wait.
 */
export type CommHook<S> = (state: S, bucket: GradBucket) => Tensor;

/**
 * Averages in the dtype of the gradients: what is done without a hook.
 *
 * @param group - the ranks; all if null
 * @see PyTorch `ddp_comm_hooks.default_hooks.allreduce_hook`
 */
export function allreduceHook(group: ProcessGroup | null, bucket: GradBucket): Tensor {
  const buffer = bucket.buffer();
  allReduce(buffer, { op: 'avg', group: group ?? undefined });
  return buffer;
}

function compressed(group: ProcessGroup | null, bucket: GradBucket, dtype: DType): Tensor {
  const low = bucket.buffer().to(dtype);
  allReduce(low, { op: 'avg', group: group ?? undefined });
  return low;
}

/**
 * Averages in float16: half the traffic of float32.
 *
 * @param group - the ranks; all if null
 * @see PyTorch `ddp_comm_hooks.default_hooks.fp16_compress_hook`
 */
export function fp16CompressHook(group: ProcessGroup | null, bucket: GradBucket): Tensor {
  return compressed(group, bucket, float16);
}

/**
 * Averages in bfloat16: half the traffic of float32.
 *
 * @param group - the ranks; all if null
 * @see PyTorch `ddp_comm_hooks.default_hooks.bf16_compress_hook`
 */
export function bf16CompressHook(group: ProcessGroup | null, bucket: GradBucket): Tensor {
  return compressed(group, bucket, bfloat16);
}
