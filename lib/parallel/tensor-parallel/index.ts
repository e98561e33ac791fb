/** Tensor parallelism: modules whose parameters are sharded over the ranks of a mesh. */
export { ColwiseParallel, type LinearStyleOptions, RowwiseParallel } from './colwise-rowwise.js';
export { type DistributeModuleHooks, distributeModule } from './distribute-module.js';
export { type ApplyOptions, ParallelStyle, type StyleOptions } from './parallel-style.js';
export {
  type ParallelizeOptions,
  type ParallelizePlan,
  parallelizeModule,
} from './parallelize-module.js';
export {
  type PrepareInputOptions,
  type PrepareInputOutputOptions,
  PrepareModuleInput,
  PrepareModuleInputOutput,
  PrepareModuleOutput,
  type PrepareOutputOptions,
} from './prepare-module.js';
export { SequenceParallel, type SequenceParallelOptions } from './sequence-parallel.js';
