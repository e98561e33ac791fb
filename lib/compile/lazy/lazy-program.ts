/**
 * What is known of a function that runs in lazy segments: its calls as a tree, and their graphs.
 */
import { belowDTensor } from '../../core/dispatch.js';
import type { Tensor } from '../../core/tensor.js';
import { loweredCompilerOf } from '../aot/aot-autograd.js';
import type { LoweredFunction } from '../aot/compiled-function.js';
import type { CompileBackend } from '../backends.js';
import { whileCompiling } from '../compiling.js';
import type { RunValue } from '../graph/effects.js';
import type { Graph } from '../graph/graph.js';
import { GraphModule } from '../graph/graph-module.js';
import { metaOf, type Value, type ValueMeta } from '../graph/node.js';
import { backendOfCompile, checkedOnce, expectedOutput, madeBy } from '../outputs.js';
import { segmentGraph } from './segment-graph.js';
import { Followers, type SegmentForm, type TraceNode } from './trace-tree.js';

/** Graphs that a function keeps of its segments. Beyond, it runs op by op. */
const MAX_GRAPHS = 64;

/** Nodes of the tree. Beyond, the function runs op by op. */
const MAX_NODES = 20_000;

export class LazyProgram {
  readonly name: string;
  /** The calls that segments begin with. */
  readonly first = new Followers();
  /** Whether the function has returned a promise. */
  isAsynchronous = false;
  private readonly backend: CompileBackend;
  private readonly observe: (graph: Graph) => void;
  private graphs = 0;
  private nodes = 0;

  /** `observe` is called with each new graph. */
  constructor(name: string, backend: CompileBackend, observe: (graph: Graph) => void) {
    this.name = name;
    this.backend = backend;
    this.observe = observe;
  }

  /** Whether the calls of the function differ too often to be worth remembering. */
  get isFull(): boolean {
    return this.graphs >= MAX_GRAPHS || this.nodes >= MAX_NODES;
  }

  /** Counts a node that was added to the tree. */
  grew(): void {
    this.nodes++;
  }

  /**
   * What runs the calls of a way down the tree and returns these values at least. `inputs` are the
   * tensors from before the segment, `states` its random states and plain numbers.
   */
  formOf(
    path: readonly TraceNode[],
    inputs: ReadonlyMap<number, Tensor>,
    states: readonly RunValue[],
    results: readonly number[],
  ): SegmentForm {
    const { forms } = path[path.length - 1] as TraceNode;
    for (let i = 0; i < forms.length; i++) {
      const form = forms[i] as SegmentForm;
      if (returns(form, results)) return form;
    }
    const outputs = [...new Set([...results, ...forms.flatMap((form) => form.outputs)])];
    const form = this.compile(path, inputs, states, outputs);
    forms.unshift(form);
    return form;
  }

  private compile(
    path: readonly TraceNode[],
    inputs: ReadonlyMap<number, Tensor>,
    states: readonly RunValue[],
    outputs: readonly number[],
  ): SegmentForm {
    this.graphs++;
    const graph = segmentGraph(path, inputs, outputs);
    graph.title = `a segment of ${this.name}`;
    this.observe(graph);
    const { title } = graph;
    const backend = backendOfCompile(this.backend);
    const expected = graph.outputs.map((value) => expectedOutput(value, metaOfValue(value)));
    const examples = [...inputs.values(), ...states];
    const run = whileCompiling(title, () => this.compiled(graph, examples));
    const checked = checkedOnce(backend, title, run, expected);
    return { outputs, run: checked as SegmentForm['run'] };
  }

  private compiled(graph: Graph, examples: readonly RunValue[]): LoweredFunction {
    const lower = loweredCompilerOf(this.backend);
    if (lower !== null) return lower(graph, examples);
    const module = new GraphModule(graph, belowDTensor);
    const run = this.backend(module, examples as Tensor[]) as LoweredFunction;
    return madeBy(backendOfCompile(this.backend), graph.title, run);
  }
}

/** Whether a form returns all of these values. */
function returns({ outputs }: SegmentForm, results: readonly number[]): boolean {
  if (results.length === outputs.length && results.every((number, i) => number === outputs[i]))
    return true;
  return results.every((number) => outputs.includes(number));
}

function metaOfValue(value: Value): ValueMeta {
  if ('number' in value) return metaOf(value.number);
  return value.node.metas[value.output] as ValueMeta;
}
