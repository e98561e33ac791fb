/** Checks what a partition function returned. */
import { CompileError } from '../../core/errors.js';
import { shown } from '../../core/options.js';
import { Graph } from '../graph/graph.js';
import { lint } from '../graph/lint.js';
import { Node, type Value } from '../graph/node.js';
import {
  type Compiler,
  type ExpectedOutput,
  expectedOutput,
  metaOf,
  mismatch,
  nameOf,
} from '../outputs.js';
import type { JointGraph, Partition } from './joint-graph.js';

/**
 * A partition of the joint graph. @throws CompileError if the function returned something else, or
 * the two graphs do not take and return what they must. @internal
 */
export function checkPartition(
  joint: JointGraph,
  returned: Partition,
  fn: (joint: JointGraph) => Partition,
): Partition {
  new PartitionCheck(joint, { op: 'aotAutograd', role: 'partitionFn', fn }).check(returned);
  return returned;
}

const ADVICE =
  'It must return { forward, backward, saved } as defaultPartition(joint) does: two graphs, and ' +
  'the values of the joint graph that forward returns behind the outputs of the function, and ' +
  'that backward gets before the tangents.';

class PartitionCheck {
  private readonly joint: JointGraph;
  private readonly compiler: Compiler;

  constructor(joint: JointGraph, compiler: Compiler) {
    this.joint = joint;
    this.compiler = compiler;
  }

  check(returned: unknown): void {
    if (typeof returned !== 'object' || returned === null)
      this.fail(shown(returned), { given: returned });
    const { forward, backward, saved } = returned as Partial<Partition>;
    this.checkGraph('forward', forward);
    this.checkGraph('backward', backward);
    this.checkSaved(saved);
    this.compare(forward as Graph, backward as Graph, saved as Partition['saved']);
  }

  private checkGraph(part: string, graph: unknown): void {
    if (!(graph instanceof Graph))
      this.fail(`${shown(graph)} as ${part}, and not a graph`, { part, given: graph });
    try {
      lint(graph as Graph);
    } catch (error) {
      if (!(error instanceof CompileError)) throw error;
      this.fail(`a ${part} graph that cannot run: ${error.message}`, { part, ...error.details });
    }
  }

  private checkSaved(saved: unknown): void {
    if (!Array.isArray(saved))
      this.fail(`${shown(saved)} as saved, and not an array`, { part: 'saved', given: saved });
    const nodes = new Map(this.joint.graph.nodes.map((node) => [node.id, node]));
    for (const [i, value] of (saved as unknown[]).entries()) {
      const { node, output } = (value ?? {}) as { node?: unknown; output?: unknown };
      const known = node instanceof Node ? nodes.get(node.id) : undefined;
      const count = Math.max(1, known?.metas.length ?? 0);
      if (known !== undefined && Number.isInteger(output) && (output as number) < count) continue;
      const name = node instanceof Node ? `%${node.name}` : shown(value);
      this.fail(`${name} as saved value ${i}, which is no value of the joint graph`, {
        part: 'saved',
        given: name,
      });
    }
  }

  /** Compares what the graphs take and return with the joint graph. */
  private compare(forward: Graph, backward: Graph, saved: Partition['saved']): void {
    const { graph, primals, tangents, forwardOutputs } = this.joint;
    const values = saved.map((value) => described(value, 'saved for backward'));
    const results = graph.outputs.map((value) => described(value, ''));
    const inputs = (nodes: readonly Node[], use: string): ExpectedOutput[] =>
      nodes.map((node) => described({ node, output: 0 }, use));
    this.compareInputs('forward', forward, inputs(primals, 'an input of the function'));
    this.compareInputs('backward', backward, [...values, ...inputs(tangents, 'a tangent')]);
    const ofFunction = results.slice(0, forwardOutputs);
    this.compareOutputs('forward', forward, [...ofFunction, ...values]);
    this.compareOutputs('backward', backward, results.slice(forwardOutputs));
  }

  private compareInputs(part: string, graph: Graph, expected: readonly ExpectedOutput[]): void {
    const given = graph.placeholders.map(({ metas }) => metas[0] ?? null);
    this.compareLists(part, 'input', given, expected);
  }

  private compareOutputs(part: string, graph: Graph, expected: readonly ExpectedOutput[]): void {
    this.compareLists(part, 'output', graph.outputs.map(metaOf), expected);
  }

  private compareLists(
    part: string,
    noun: string,
    given: readonly unknown[],
    expected: readonly ExpectedOutput[],
  ): void {
    const wrong = mismatch(given, expected, noun);
    if (wrong !== null) this.fail(`a ${part} graph with ${wrong.text}`, { part, ...wrong.details });
  }

  private fail(what: string, details: Record<string, unknown>): never {
    const { op } = this.compiler;
    const name = nameOf(this.compiler);
    const title = this.joint.graph.title || 'a graph';
    throw new CompileError(`${op}: ${name} returned ${what}, for ${title}. ${ADVICE}`, {
      compiler: name,
      ...details,
    });
  }
}

const described = (value: Value, use: string): ExpectedOutput =>
  expectedOutput(value, metaOf(value), use);
