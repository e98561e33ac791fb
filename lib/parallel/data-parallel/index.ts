/** Data parallelism with the whole model on each rank. */
export type { GradBucket } from './buckets.js';
export { allreduceHook, bf16CompressHook, type CommHook, fp16CompressHook } from './comm-hooks.js';
export {
  DistributedDataParallel,
  type DistributedDataParallelOptions,
  type JoinOptions,
} from './distributed-data-parallel.js';
