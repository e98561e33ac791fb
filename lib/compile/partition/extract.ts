/**
 * Makes the two graphs of a partition, given the values that backward gets from forward. What else
 * backward reads of forward it computes again: views always, other values where the partitioner
 * has decided so.
 */
import { CompileError } from '../../core/errors.js';
import { copyGraph, copyOfValue } from '../graph/copy.js';
import { Dependencies } from '../graph/dependencies.js';
import { eliminateDeadCode } from '../graph/eliminate.js';
import { Graph } from '../graph/graph.js';
import { originText } from '../graph/lint.js';
import { Node, type Value } from '../graph/node.js';
import { mustStay, writes } from '../graph/traits.js';
import type { Halves, JointGraph, Partition } from './joint-graph.js';
import { isAlias, type Memory } from './memory.js';
import { type NodeValue, ValueMap } from './value-map.js';

/** What backward gets. @internal */
export interface Choice {
  /**
   * Whether a value of forward that is no view is passed on; otherwise backward computes its node
   * again.
   */
  saves(value: NodeValue): boolean;
  /** Whether forward computes a value of backward and passes it on. */
  savesEarly(value: NodeValue): boolean;
}

/** Makes the partition of a plan. @internal */
export function extract(joint: JointGraph, halves: Halves, plan: BackwardPlan): Partition {
  const { saved } = plan;
  return {
    forward: forwardGraph(joint, halves, saved),
    backward: backwardGraph(joint, plan, saved),
    saved,
  };
}

/** Whether a value of a graph is a tensor, and not a random state or a version. @internal */
export function isTensor({ node, output }: NodeValue): boolean {
  return node.metas[output] !== undefined;
}

/** What backward computes in which order, and what it gets. @internal */
export interface BackwardPlan {
  readonly nodes: readonly Node[];
  /** Tensors before others. */
  readonly saved: readonly NodeValue[];
  /** The tensor that an in-place call of forward returned, before the call. */
  readonly settled: (value: NodeValue) => NodeValue;
}

/**
 * Walks back from the gradients. A node of forward that backward computes again stands directly
 * before the first node that needs it, so that its memory is short-lived.
 *
 * @throws CompileError if backward would repeat an effect
 * @internal
 */
export function planBackward(
  joint: JointGraph,
  { forward, backward }: Halves,
  memory: Memory,
  choice: Choice,
): BackwardPlan {
  const nodesOfForward = new Set(forward);
  const settled = (value: NodeValue): NodeValue => {
    let at = value;
    while (nodesOfForward.has(at.node) && at.node.into !== null && at.output === 0)
      at = at.node.into as NodeValue;
    return at;
  };
  const isPassed = (value: NodeValue): boolean => {
    const { node } = value;
    if (!nodesOfForward.has(node)) return choice.savesEarly(value);
    return node.kind !== 'constant' && !memory.isWindow(value) && choice.saves(value);
  };
  const saved = new ValueMap<true>();
  // The place in backward of the first node that needs each node.
  const due = new Map<Node, number>();
  const use = (value: Value, at: number): void => {
    if ('number' in value) return;
    const read = settled(value);
    if (isPassed(read)) saved.set(read, true);
    else due.set(read.node, Math.min(at, due.get(read.node) ?? at));
  };
  for (const value of joint.graph.outputs.slice(joint.forwardOutputs)) use(value, backward.length);
  for (let i = backward.length - 1; i >= 0; i--) {
    const node = backward[i] as Node;
    if (node.kind === 'placeholder' || !(due.has(node) || mustStay(node))) continue;
    due.set(node, i);
    for (const value of node.reads) use(value, i);
  }
  for (const node of [...forward].reverse()) {
    const at = due.get(node);
    if (at === undefined) continue;
    checkRepeatable(node);
    for (const value of node.reads) use(value, at);
  }
  const nodes = inOrder([...forward, ...backward], backward, due);
  const inputs = inGraphOrder(saved.keys, memory);
  const others = inputs.filter((value) => !isTensor(value));
  return { nodes, saved: [...inputs.filter(isTensor), ...others], settled };
}

function inOrder(
  all: readonly Node[],
  backward: readonly Node[],
  due: ReadonlyMap<Node, number>,
): Node[] {
  const ownPlaces = new Set(backward);
  const dueAt: Node[][] = Array.from({ length: backward.length + 1 }, () => []);
  for (const node of all) {
    const at = due.get(node);
    if (at !== undefined && !ownPlaces.has(node)) (dueAt[at] as Node[]).push(node);
  }
  return dueAt.flatMap((early, i) => {
    const own = backward[i];
    return own !== undefined && due.has(own) ? [...early, own] : early;
  });
}

function inGraphOrder(values: readonly NodeValue[], memory: Memory): NodeValue[] {
  const order = (a: NodeValue, b: NodeValue): number =>
    memory.positionOf(a.node) - memory.positionOf(b.node) || a.output - b.output;
  return [...values].sort(order);
}

function checkRepeatable(node: Node): void {
  if (node.kind !== 'placeholder' && !writes(node) && (node.kind !== 'effect' || isAlias(node)))
    return;
  throw new CompileError(
    `partition: backward needs %${node.name} of forward, which can only be saved` +
      `${originText(node)}, and it was not`,
    { node: node.name },
  );
}

/** Forward: its half, and nodes of backward that a saved value needs. */
function forwardGraph(joint: JointGraph, halves: Halves, saved: readonly NodeValue[]): Graph {
  const { graph, primals } = joint;
  const outputs = [...graph.outputs.slice(0, joint.forwardOutputs), ...saved];
  const first = new Set(primals);
  const nodes = new Set(halves.forward);
  for (const node of reachedFrom(outputs, nodes)) nodes.add(node);
  const others = graph.nodes.filter((node) => nodes.has(node) && !first.has(node));
  const { graph: copy, nodeMap } = copyGraph(graph, [...primals, ...others]);
  copy.outputs = outputs.map((value) => copyOfValue(value, nodeMap));
  eliminateDeadCode(copy);
  return copy;
}

/** The nodes that values need beside known ones. */
function reachedFrom(values: readonly Value[], known: ReadonlySet<Node>): Set<Node> {
  const reached = new Set<Node>();
  const queue = [...values];
  for (let value = queue.pop(); value !== undefined; value = queue.pop()) {
    if ('number' in value || known.has(value.node) || reached.has(value.node)) continue;
    reached.add(value.node);
    queue.push(...value.node.reads);
  }
  return reached;
}

/** Backward: from the saved values and the tangents to the gradients. @internal */
export function backwardGraph(
  joint: JointGraph,
  plan: BackwardPlan,
  saved: readonly NodeValue[],
): Graph {
  const graph = new Graph();
  const copies = new Map<Node, Node>();
  const inputs = new ValueMap<Node>();
  const again = new Set(plan.nodes);
  for (const value of saved) inputs.set(value, savedInput(graph, value, again.has(value.node)));
  for (const node of joint.tangents)
    copies.set(
      node,
      append(graph, node, (value) => value),
    );
  const mapped = (value: Value): Value => {
    if ('number' in value) return value;
    const read = plan.settled(value);
    const input = inputs.get(read);
    if (input !== undefined) return { node: input, output: 0 };
    return { node: copies.get(read.node) as Node, output: read.output };
  };
  for (const node of plan.nodes) copies.set(node, append(graph, node, mapped));
  graph.outputs = joint.graph.outputs.slice(joint.forwardOutputs).map(mapped);
  graph.shared = inOneMemory(joint.graph, [
    ...saved.map((value) => [value, inputs.get(value) as Node] as const),
    ...plan.nodes.flatMap((node) =>
      node.kind === 'constant' ? [[{ node, output: 0 }, copies.get(node) as Node] as const] : [],
    ),
  ]);
  return graph;
}

/**
 * Which nodes of backward lie in one memory, of those that stand for these values of the joint
 * graph: ops that manage memory have placed values there.
 */
function inOneMemory(from: Graph, places: readonly (readonly [NodeValue, Node])[]): Node[][] {
  const manages = from.nodes.some(({ op }) => op !== null && op.manages !== null);
  if (!manages && from.shared.length === 0) return [];
  const dependencies = new Dependencies(from);
  const byMemory = new Map<object, Node[]>();
  for (const [value, node] of places) {
    const memory = dependencies.memoryOf(value);
    byMemory.set(memory, [...(byMemory.get(memory) ?? []), node]);
  }
  return [...byMemory.values()].filter((nodes) => nodes.length > 1);
}

/**
 * The placeholder of a saved value. That of a first output has the node's number, unless backward
 * computes the node again for its other outputs.
 */
function savedInput(graph: Graph, { node, output }: NodeValue, isComputed: boolean): Node {
  const { name, origin, tags, metas } = node;
  const fields = {
    kind: 'placeholder',
    origin,
    tags,
    metas: metas.slice(output, output + 1),
  } as const;
  if (output === 0 && !isComputed) return push(graph, new Node({ ...fields, name }, node.id));
  return push(graph, new Node({ ...fields, name: `${name}.${output}` }));
}

function append(graph: Graph, node: Node, mapped: (value: Value) => Value): Node {
  const { draw, into } = node;
  const fields = {
    ...node,
    inputs: node.inputs.map(mapped),
    into: into === null ? null : mapped(into),
    draw: draw === null ? null : (mapped({ node: draw, output: 0 }) as NodeValue).node,
  };
  return push(graph, new Node(fields, node.id));
}

function push(graph: Graph, node: Node): Node {
  graph.reserveName(node.name);
  graph.nodes.push(node);
  return node;
}
