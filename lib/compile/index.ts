/** `shardwise/compile`: graphs, tracing, fake tensors. */
import '../runtime.js';

export {
  type CompilableModule,
  type CompileBackend,
  type CompiledGraph,
  type CompileOptions,
  compile,
  disable,
  graphBreak,
  isCompiling,
  reset,
} from './compile.js';
export * as compiler from './compiler.js';
export type {
  FakeMemory,
  FakeMemoryHolder,
  FakeMemoryStats,
  FakeMemoryUse,
} from './fake-memory.js';
export { FakeTensorMode } from './fake-tensor-mode.js';
export { Graph, Node, type NodeKind, type Value } from './graph.js';
export { GraphModule } from './graph-module.js';
