/** `shardwise/spmd`: train steps compiled for several ranks, and passes over their graphs. */
import '../runtime.js';
import '../runtime-distributed.js';
import { declareExports } from '../core/library-exports.js';
import * as entry from './index.js';

export type { LinkRates, Rates, RatesName } from '../compile/estimate/rates.js';
export type { Lane } from '../compile/estimate/tasks.js';
export { type CommBlock, getAllCommBlocks, getCommBlock } from './comm-block.js';
export { commFusionWithConcat } from './comm-fusion.js';
export { scheduleCommWait } from './comm-wait.js';
export { compile, type SpmdOptions, type SpmdStep, type StepFlags } from './compile.js';
export { dumpGraphsToFiles, graphToDot } from './dump.js';
export { findAllDescendants, findNode } from './graph-utils.js';
export { IterGraph } from './iter-graph.js';
export { IterGraphModule, type IterGraphModuleOptions } from './iter-graph-module.js';
export { mergeEqualCollectives } from './merge-collectives.js';
export { iterMoveGradsAndOptimizers } from './move.js';
export {
  type FusedOptimizerBlock,
  getAllFusedOptimizerBlocks,
  type OperandLists,
} from './optimizer-blocks.js';
export type { ParallelMode } from './parallel-mode.js';
export {
  clearAppliedPasses,
  type GraphPass,
  type GraphPassOptions,
  graphOptimizationPass,
  type PassTarget,
} from './pass-contract.js';
export type { LayoutName, PlannedStep, ShardParameter } from './plan/layouts.js';
export type { PlanMemory } from './plan/memory.js';
export type { PlanMesh, PlanOptions } from './plan/options.js';
export {
  type LayoutPlan,
  type PlanContext,
  type PlanTraffic,
  plan,
  StepPlan,
} from './plan/plan.js';
export { removeCopyFromOptimizer } from './remove-copy.js';
export { splitFusedOptimizer } from './split-optimizer.js';
export { StepModule } from './step-module.js';
export { type RecordTimelineOptions, recordTimeline } from './timeline/record.js';
export { type TimelineOptions, timeline } from './timeline/simulate.js';
export { Timeline, type TimelineEntry } from './timeline/timeline.js';
export {
  GraphModuleTransformation,
  type GraphModuleTransformationOptions,
  type StepTransformation,
} from './transformation.js';

declareExports(entry);
