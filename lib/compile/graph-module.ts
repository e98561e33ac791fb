/** Runs a graph. Its nodes become steps, in which every value is an index into one array. */
import { gradMode, setGradMode } from '../autograd/grad-mode.js';
import { belowEntry } from '../core/dispatch.js';
import { CompileError } from '../core/errors.js';
import type { Tensor } from '../core/tensor.js';
import type { Graph, Node, Value } from './graph.js';

/**
 * A node with the indices of its values. Plain numbers and constants have their values from the
 * start.
 */
interface Step {
  readonly node: Node;
  readonly inputs: readonly number[];
  /** The tensor that the call writes into, or -1. */
  readonly into: number;
  /** The node's first output. */
  readonly at: number;
  readonly outputs: number;
}

/** A graph that can be called. Edits take effect at {@link GraphModule.recompile}. */
export class GraphModule {
  /** The graph that calls run. Edits take effect at {@link recompile}. */
  readonly graph: Graph;
  private steps: readonly Step[] = [];
  private placeholders: readonly number[] = [];
  private results: readonly number[] = [];
  /** The values before the first step. */
  private initial: readonly (Tensor | null)[] = [];
  private text = '';

  constructor(graph: Graph) {
    this.graph = graph;
    this.recompile();
  }

  /** The compiled form as text. */
  get code(): string {
    return this.text;
  }

  /**
   * Applies edits of the graph. @throws CompileError if a node uses a later one
   */
  recompile(): void {
    const numbers = new Numbering();
    const steps: Step[] = [];
    for (const node of this.graph.nodes) {
      const inputs = node.inputs.map((value) => numbers.of(value, `node %${node.name}`));
      const into = node.into === null ? -1 : numbers.of(node.into, `node %${node.name}`);
      const at = numbers.add(node);
      if (node.kind === 'call' || node.kind === 'effect')
        steps.push({ node, inputs, into, at, outputs: outputsOf(node) });
    }
    this.results = this.graph.outputs.map((value) => numbers.of(value, 'the result'));
    this.placeholders = this.graph.nodes
      .filter((n) => n.kind === 'placeholder')
      .map((node) => numbers.of({ node, output: 0 }, 'an input'));
    this.steps = steps;
    this.initial = numbers.initial;
    this.text = this.graph.toString();
  }

  /**
   * Runs the graph on real tensors, one for each placeholder, and records autograd as usual. The
   * conversions of autocast are calls of the graph, so an autocast region around adds none.
   */
  forward(...inputs: readonly Tensor[]): Tensor[] {
    const values = this.initial.slice();
    for (let i = 0; i < this.placeholders.length; i++)
      values[this.placeholders[i] as number] = inputs[i] as Tensor;
    const outer = gradMode();
    let mode = outer;
    try {
      for (let i = 0; i < this.steps.length; i++) {
        const step = this.steps[i] as Step;
        const wanted = step.node.mode ?? outer;
        if (wanted !== mode) {
          setGradMode(wanted);
          mode = wanted;
        }
        runStep(step, values);
      }
    } finally {
      setGradMode(outer);
    }
    return this.results.map((at) => values[at] as Tensor);
  }
}

function runStep(step: Step, values: (Tensor | null)[]): void {
  const { node } = step;
  const operands = new Array<Tensor>(step.inputs.length);
  for (let i = 0; i < operands.length; i++)
    operands[i] = values[step.inputs[i] as number] as Tensor;
  if (node.op === null) {
    node.effect?.(...operands);
    return;
  }
  const params =
    node.generator === null ? node.params : { ...node.params, ...node.generator.next() };
  const outputs = belowEntry(
    node.op,
    operands,
    params,
    step.into < 0 ? null : (values[step.into] as Tensor),
  );
  for (let i = 0; i < step.outputs; i++) values[step.at + i] = outputs[i] as Tensor;
}

function outputsOf(node: Node): number {
  return node.kind === 'effect' ? 0 : Math.max(1, node.metas.length);
}

/** Assigns an index to every value of a graph. */
class Numbering {
  readonly initial: (Tensor | null)[] = [];
  private readonly first = new Map<Node, number>();

  add(node: Node): number {
    const at = this.initial.length;
    this.first.set(node, at);
    for (let i = 0; i < outputsOf(node); i++) this.initial.push(node.tensor);
    return at;
  }

  /** @throws CompileError if the node of the value was not added before */
  of(value: Value, user: string): number {
    if ('number' in value) return this.initial.push(value.number) - 1;
    const at = this.first.get(value.node);
    if (at === undefined)
      throw new CompileError(`${user} uses %${value.node.name}, which does not come before it`);
    return at + value.output;
  }
}
