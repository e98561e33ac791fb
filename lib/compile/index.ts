/** `shardwise/compile`: graphs, tracing, fake tensors. */
import '../runtime.js';
import { declareExports } from '../core/library-exports.js';
import * as entry from './index.js';

export {
  type AotAutogradOptions,
  aotAutograd,
  type LoweredCompiler,
} from './aot/aot-autograd.js';
export type { LoweredFunction } from './aot/compiled-function.js';
export type { PartitionFunction } from './aot/partitioned.js';
export type { BackwardCompiler } from './autograd-capture/compiled-autograd.js';
export * as compiledAutograd from './autograd-capture/compiled-autograd.js';
export {
  type CompilableModule,
  type CompileBackend,
  type CompiledGraph,
  type CompileOptions,
  compile,
  disable,
  graphBreak,
  isCompiling,
} from './compile.js';
export * as compiler from './compiler.js';
export { reset } from './compiler.js';
export { markDynamic } from './dynamic-marks.js';
export type { LinkRates, Rates, RatesName } from './estimate/rates.js';
export type {
  FakeMemory,
  FakeMemoryHolder,
  FakeMemoryStats,
  FakeMemoryUse,
} from './fake-memory.js';
export { FakeTensorMode } from './fake-tensor-mode.js';
export { copyGraph, type GraphCopy } from './graph/copy.js';
export type { EffectName, RunValue } from './graph/effects.js';
export { eliminateDeadCode, mergeEqualCalls } from './graph/eliminate.js';
export { Graph } from './graph/graph.js';
export { GraphModule } from './graph/graph-module.js';
export { lint } from './graph/lint.js';
export {
  Node,
  type NodeFields,
  type NodeKind,
  type NodeOrigin,
  type Value,
  type ValueMeta,
} from './graph/node.js';
export type { SizePlace, SizeSymbol, SymbolicFields } from './graph/symbols.js';
export * as inductor from './inductor.js';
export { runAndGetKernelCode } from './kernel-code.js';
export { defaultPartition } from './partition/default.js';
export type { JointGraph, Partition } from './partition/joint-graph.js';
export { type MinCutOptions, minCutRematerializationPartition } from './partition/min-cut.js';
export { raiseCollectives } from './passes/collectives/raise-collectives.js';
export {
  type OverlapOptions,
  reorderForOverlap,
} from './passes/collectives/reorder-for-overlap.js';
export { sinkWaits } from './passes/collectives/sink-waits.js';
export { markRebound } from './rebound.js';
export {
  CapturedStep,
  type CaptureStepOptions,
  captureStep,
  type StepRunner,
} from './step/capture-step.js';
export type { Distribute } from './step/distribute.js';
export type { StepGradient } from './step/gradients.js';
export type { StepInput } from './step/lifts.js';
export type { StepRole } from './step/names.js';

declareExports(entry);
