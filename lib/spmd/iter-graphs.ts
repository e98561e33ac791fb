/**
 * The graphs of the first, the last and all other iterations, as they follow from the graph of one
 * iteration and what was moved. What moved nodes read is kept until the next iteration.
 */
import { appendCopy, copyOfValue } from '../compile/graph/copy.js';
import { Graph } from '../compile/graph/graph.js';
import type { Node, Value } from '../compile/graph/node.js';
import { writtenValues } from '../compile/partition/memory.js';
import { type NodeValue, ValueMap } from '../compile/partition/value-map.js';
import { insertCalls } from '../compile/passes/insert-calls.js';
import type { Tensor } from '../core/tensor.js';
import { clone } from '../ops/copy.js';
import type { IterGraph } from './iter-graph.js';

/** The graphs of an IterGraph. The last two take the kept values as further inputs. */
export interface IterGraphs {
  /** The first iteration, without the moved nodes. */
  readonly setup: Graph;
  /** Any other one: the moved nodes on kept values, and the rest. */
  readonly main: Graph;
  /** The last one: also the moved nodes of its own. */
  readonly cleanup: Graph;
  /** The number of values that are kept from one iteration to the next. */
  readonly kept: number;
}

/**
 * Makes the graphs. `lasting`: the placeholders that are the same tensor in all iterations, such as
 * parameters. Others are copied, if moved nodes read them.
 */
export function iterGraphs(graph: IterGraph, lasting: ReadonlySet<Node>): IterGraphs {
  const kept = keptValues(graph, lasting);
  const part = (hasEarlier: boolean, keeps: boolean): Graph =>
    new Assembly(graph, kept).graphOf(hasEarlier, keeps);
  return {
    setup: part(false, true),
    main: part(true, true),
    cleanup: part(true, false),
    kept: kept.length,
  };
}

/** What moved nodes read from others. */
function keptValues({ nodes, moved }: IterGraph, lasting: ReadonlySet<Node>): NodeValue[] {
  const found = new ValueMap<true>();
  for (const node of nodes) {
    if (!moved.has(node)) continue;
    for (const value of node.reads) {
      if ('number' in value || moved.has(value.node) || value.node.kind === 'constant') continue;
      if (value.node.kind !== 'placeholder' || !lasting.has(value.node)) found.set(value, true);
    }
  }
  return [...found.keys];
}

class Assembly {
  private readonly from: IterGraph;
  private readonly kept: readonly NodeValue[];
  private readonly graph = new Graph();
  private readonly copies = new Map<Node, Node>();
  /** The copies of moved nodes of the iteration before, and the inputs with what they read. */
  private readonly earlier = new Map<Node, Node>();
  private readonly keptAt = new ValueMap<Value>();

  constructor(from: IterGraph, kept: readonly NodeValue[]) {
    this.from = from;
    this.kept = kept;
    this.graph.title = from.title;
  }

  /**
   * `hasEarlier`: moved nodes of the iteration before run. `keeps`: its own run in the next one.
   */
  graphOf(hasEarlier: boolean, keeps: boolean): Graph {
    const { from, graph, copies } = this;
    const isInput = ({ kind }: Node): boolean => kind === 'placeholder';
    for (const node of from.nodes) {
      graph.reserveName(node.name);
      if (isInput(node)) appendCopy(graph, node, copies);
    }
    if (hasEarlier) for (const value of this.kept) this.keptAt.set(value, this.keptInput(value));
    const arriving = hasEarlier ? byTarget(from) : new Map<Node, Node[]>();
    for (const node of from.nodes) {
      if (isInput(node)) continue;
      for (const moved of arriving.get(node) ?? []) this.addMoved(moved);
      if (!from.moved.has(node) || !keeps) appendCopy(graph, node, copies);
    }
    graph.outputs = from.outputs.map((value) => copyOfValue(value, copies));
    if (keeps) for (const value of this.kept) graph.outputs.push(this.keptOutput(value));
    return graph;
  }

  private keptInput({ node, output }: NodeValue): Value {
    const metas = node.metas.slice(output, output + 1);
    return { node: this.graph.add({ kind: 'placeholder', name: 'kept', metas }), output: 0 };
  }

  /** The value for the next iteration; a copy of an argument, which the program may change. */
  private keptOutput(value: NodeValue): Value {
    const own = copyOfValue(value, this.copies) as NodeValue;
    if (own.node.kind !== 'placeholder') return own;
    const last = this.graph.nodes.at(-1) as Node;
    const copied = (t: Tensor): readonly Tensor[] => [clone(t)];
    const [copy] = insertCalls(this.graph, last, [own], copied as never) as [Value];
    return copy;
  }

  /** A copy of a moved node on kept values. Its number is new, since the original may follow. */
  private addMoved(node: Node): void {
    const mapped = (value: Value): Value => {
      if ('number' in value) return value;
      const copy = this.earlier.get(value.node);
      if (copy !== undefined) return { node: copy, output: value.output };
      return this.keptAt.get(value) ?? copyOfValue(value, this.copies);
    };
    const { draw } = node;
    const fields = {
      ...node,
      name: `${node.name}_earlier`,
      inputs: node.inputs.map(mapped),
      into: node.into === null ? null : mapped(node.into),
      draw: draw === null ? null : (this.earlier.get(draw) ?? draw),
    };
    this.earlier.set(node, this.graph.add(fields));
  }
}

/** The moved nodes before each target, in the order of the graph. */
function byTarget({ nodes, moved }: IterGraph): Map<Node, Node[]> {
  const found = new Map<Node, Node[]>();
  for (const node of nodes) {
    const target = moved.get(node);
    if (target !== undefined) found.set(target, [...(found.get(target) ?? []), node]);
  }
  return found;
}

/** The placeholders whose memory the graph writes. */
export function writtenPlaceholders(graph: Graph): Set<Node> {
  return new Set(
    graph.nodes.flatMap((node) =>
      writtenValues(node).flatMap(({ node: written }) =>
        written.kind === 'placeholder' ? [written] : [],
      ),
    ),
  );
}
