/** `shardwise/compile`: graphs, tracing, fake tensors. */
import '../runtime.js';

export { type CompileBackend, type CompiledGraph, type CompileOptions, compile, isCompiling, reset } from './compile.js';
export { FakeTensorMode } from './fake-tensor-mode.js';
export { Graph, GraphModule, Node, type NodeKind, type Value } from './graph.js';
