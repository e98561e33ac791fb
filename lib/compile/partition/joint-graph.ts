/** Joint graphs of a function and its gradients, and what a partition makes of them. */
import { CompileError } from '../../core/errors.js';
import { unexpected } from '../../core/options.js';
import { Graph } from '../graph/graph.js';
import { lint, originText } from '../graph/lint.js';
import { Node, type Value } from '../graph/node.js';

/** The tag of nodes that the backward pass recorded. @internal */
export const BACKWARD = 'backward';

/**
 * Forward and backward in one graph of local ops. Its outputs are those of the function, followed
 * by the gradients.
 *
 * Nodes of backward have the tag `backward`. If no node has it, those of forward stand before the
 * first tangent; and if only placeholders stand there, before the first node that depends on one.
 */
export interface JointGraph {
  /** The graph. Partitions copy it and leave it as it is. */
  readonly graph: Graph;
  /** The placeholders of the function's inputs. */
  readonly primals: readonly Node[];
  /** The placeholders of the gradients of the function's outputs. */
  readonly tangents: readonly Node[];
  /** How many outputs are those of the function. */
  readonly forwardOutputs: number;
}

/** A joint graph as two graphs. Nodes of both have the numbers and names that they had in it. */
export interface Partition {
  /** From the primals to the outputs of the function, followed by the saved values. */
  readonly forward: Graph;
  /** From the saved values, followed by the tangents, to the gradients. */
  readonly backward: Graph;
  /**
   * The values of the joint graph that forward passes to backward: tensors, then random states and
   * versions, which are none. No two of the tensors are views of one memory.
   */
  readonly saved: readonly { node: Node; output: number }[];
}

/** The nodes of a joint graph without its tangents. @internal */
export interface Halves {
  /** The nodes of forward, with the primals. */
  readonly forward: readonly Node[];
  readonly backward: readonly Node[];
  /** The nodes that depend on a tangent. */
  readonly dependent: ReadonlySet<Node>;
}

/**
 * Checks a joint graph and finds its two halves.
 *
 * @throws CompileError for a graph without tangents, or one whose order does not allow two halves
 * @internal
 */
export function halvesOf(joint: JointGraph): Halves {
  checkJoint(joint);
  const { graph, tangents } = joint;
  lint(graph);
  checkPlaceholders(joint);
  const dependent = dependentOn(graph, tangents);
  const isLate = backwardTest(joint, dependent);
  const inputs = { primals: new Set(joint.primals), tangents: new Set(tangents) };
  const forward: Node[] = [];
  const backward: Node[] = [];
  graph.nodes.forEach((node, i) => {
    if (inputs.tangents.has(node)) return;
    (inputs.primals.has(node) || !isLate(node, i) ? forward : backward).push(node);
  });
  const halves = { forward, backward, dependent };
  checkForward(joint, halves);
  return halves;
}

/** @throws ArgumentError unless it is a joint graph */
function checkJoint(joint: unknown): void {
  const { graph, primals, tangents, forwardOutputs } = (joint ?? {}) as Partial<JointGraph>;
  const areNodes = [primals, tangents].every(
    (list) => Array.isArray(list) && list.every((node) => node instanceof Node),
  );
  if (!(graph instanceof Graph) || !areNodes || !Number.isSafeInteger(forwardOutputs))
    throw unexpected(
      'partition',
      'joint',
      'a joint graph, { graph, primals, tangents, forwardOutputs }',
      joint,
    );
}

function checkPlaceholders({ graph, primals, tangents, forwardOutputs }: JointGraph): void {
  if (tangents.length === 0)
    throw new CompileError(
      'partition: expected a joint graph with tangents, got one without. It has no gradients, so ' +
        'run it as it is.',
    );
  const named = new Set([...primals, ...tangents]);
  const placeholders = new Set(graph.placeholders);
  const other =
    graph.placeholders.find((node) => !named.has(node)) ??
    [...named].find((node) => !placeholders.has(node));
  if (other !== undefined)
    throw new CompileError(
      'partition: expected each placeholder of the graph among primals or tangents, got ' +
        `%${other.name}`,
      { node: other.name },
    );
  if (
    !Number.isInteger(forwardOutputs) ||
    forwardOutputs < 0 ||
    forwardOutputs > graph.outputs.length
  )
    throw new CompileError(
      `partition: expected forwardOutputs from 0 to ${graph.outputs.length}, the outputs of the ` +
        `graph, got ${forwardOutputs}`,
      { forwardOutputs },
    );
}

function dependentOn(graph: Graph, tangents: readonly Node[]): Set<Node> {
  const dependent = new Set<Node>(tangents);
  for (const node of graph.nodes)
    if (node.reads.some((v) => 'node' in v && dependent.has(v.node))) dependent.add(node);
  return dependent;
}

/** Says whether a node is of backward. */
function backwardTest(
  { graph, tangents }: JointGraph,
  dependent: ReadonlySet<Node>,
): (node: Node, position: number) => boolean {
  const { nodes } = graph;
  if (nodes.some((node) => node.tags.has(BACKWARD)))
    return (node) => node.tags.has(BACKWARD) || dependent.has(node);
  const first = nodes.findIndex((node) => tangents.includes(node));
  const isStep = (node: Node): boolean => node.kind === 'call' || node.kind === 'effect';
  if (nodes.slice(0, first).some(isStep)) return (_, position) => position >= first;
  const user = nodes.findIndex((node) => isStep(node) && dependent.has(node));
  return (_, position) => user >= 0 && position >= user;
}

function checkForward(joint: JointGraph, { forward, backward }: Halves): void {
  const { graph, forwardOutputs, tangents } = joint;
  const late = new Set([...backward, ...tangents]);
  const check = (value: Value, user: string): void => {
    if ('number' in value || !late.has(value.node) || value.node.kind === 'constant') return;
    throw new CompileError(
      `partition: ${user} needs %${value.node.name} of backward${originText(value.node)}. Passes ` +
        'must leave what forward needs before the first tangent, and without the tag backward.',
      { node: value.node.name },
    );
  };
  graph.outputs.slice(0, forwardOutputs).forEach((value, i) => {
    check(value, `output ${i} of the function`);
  });
  for (const node of forward)
    for (const value of node.reads) check(value, `%${node.name} of forward`);
}
