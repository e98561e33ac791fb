/** Passes that shorten a graph: removal of unused nodes, and of repeated ones. */
import { sameShape } from '../../core/shape.js';
import { checkGraph } from './check-graph.js';
import type { Graph } from './graph.js';
import { type Node, sameValue, type Value } from './node.js';
import { communicates, isRandom, isView, mustStay, writes } from './traits.js';

/**
 * Removes nodes whose values nothing uses. Nodes stay that change memory, draw random numbers, run
 * code of the program or communicate, which all ranks must do alike.
 *
 * @returns the number of removed nodes
 * @throws ArgumentError for what is no graph
 */
export function eliminateDeadCode(graph: Graph): number {
  checkGraph('eliminateDeadCode', graph);
  const used = new Set<Node>();
  const use = (value: Value): void => {
    if ('node' in value) used.add(value.node);
  };
  graph.outputs.forEach(use);
  const kept: Node[] = [];
  for (const node of [...graph.nodes].reverse()) {
    if (!used.has(node) && !mustStay(node)) continue;
    node.reads.forEach(use);
    kept.push(node);
  }
  const removed = graph.nodes.length - kept.length;
  graph.nodes.splice(0, graph.nodes.length, ...kept.reverse());
  return removed;
}

/**
 * Replaces calls that repeat an earlier one: equal op, operands and parameters. Calls that change
 * memory, draw, communicate, return views, or whose memory is changed later, stay.
 *
 * @returns the number of removed nodes
 * @throws ArgumentError for what is no graph
 * @see PyTorch `torch._functorch.compile_utils.fx_graph_cse`
 */
export function mergeEqualCalls(graph: Graph): number {
  checkGraph('mergeEqualCalls', graph);
  const changed = changedNodes(graph);
  const earlier = new Map<string, Node[]>();
  const kept: Node[] = [];
  for (const node of graph.nodes) {
    if (node.kind !== 'call' || !mergeable(node, changed)) {
      kept.push(node);
      continue;
    }
    const key = node.op?.name ?? '';
    const candidates = earlier.get(key) ?? [];
    const same = candidates.find((other) => equalCalls(other, node));
    if (same === undefined) {
      earlier.set(key, [...candidates, node]);
      kept.push(node);
    } else
      for (let i = 0; i < Math.max(1, node.metas.length); i++)
        graph.replaceUses({ node, output: i }, { node: same, output: i });
  }
  const removed = graph.nodes.length - kept.length;
  graph.nodes.splice(0, graph.nodes.length, ...kept);
  return removed;
}

function mergeable(node: Node, changed: ReadonlySet<Node>): boolean {
  return (
    !writes(node) &&
    !communicates(node) &&
    !isRandom(node) &&
    !isView(node) &&
    !changed.has(node) &&
    !(node.op?.traits.includes('uninitialized') ?? false) &&
    !node.inputs.some((v) => 'node' in v && changed.has(v.node))
  );
}

/** Nodes whose memory some node of the graph changes, with all their views. */
export function changedNodes(graph: Graph): Set<Node> {
  const base = (node: Node): Node => {
    let at = node;
    for (;;) {
      const source = isView(at) ? at.inputs[0] : at.into;
      if (!source || 'number' in source) return at;
      at = source.node;
    }
  };
  const bases = new Set<Node>();
  for (const node of graph.nodes) {
    if (!writes(node)) continue;
    const targets = node.into !== null ? [node.into] : node.inputs;
    for (const value of targets) if ('node' in value) bases.add(base(value.node));
  }
  return new Set(graph.nodes.filter((node) => bases.has(base(node))));
}

/** Whether calls have equal ops, operands and parameters. @internal */
export function equalCalls(a: Node, b: Node): boolean {
  return (
    a.op === b.op &&
    a.mode === b.mode &&
    a.inputs.length === b.inputs.length &&
    a.inputs.every((value, i) => equalOperands(value, b.inputs[i] as Value)) &&
    equalParams(a.params, b.params)
  );
}

function equalOperands(a: Value, b: Value): boolean {
  if ('number' in a && 'number' in b)
    return (
      Object.is(a.number.scalarValue, b.number.scalarValue) && a.number.dtype === b.number.dtype
    );
  return sameValue(a, b);
}

function equalParams(a: object, b: object): boolean {
  const [left, right] = [Object.entries(a), Object.entries(b)];
  return (
    left.length === right.length &&
    left.every(([name, value], i) => {
      const [otherName, other] = right[i] as [string, unknown];
      return name === otherName && equalParam(value, other);
    })
  );
}

function equalParam(a: unknown, b: unknown): boolean {
  const numbers = (v: unknown): v is readonly number[] =>
    Array.isArray(v) && v.every((item) => typeof item === 'number');
  return Object.is(a, b) || (numbers(a) && numbers(b) && sameShape(a, b));
}
