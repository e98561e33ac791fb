/**
 * Passes whose graphs differ in plain numbers only, such as a scale in a hook that each step
 * registers anew. They share one graph, which gets the numbers as inputs.
 */
import { isDeepStrictEqual } from 'node:util';
import type { Tensor } from '../../core/tensor.js';
import { copyGraph } from '../graph/copy.js';
import type { Graph } from '../graph/graph.js';
import type { Node, Value } from '../graph/node.js';
import { isSameStep } from '../graph/same-step.js';
import { BackwardGraph } from './backward-graph.js';

/** A plain number of a graph: an operand of a node, by its position. */
interface Place {
  readonly node: number;
  readonly input: number;
}

/** What runs for a pass: a graph, and the numbers behind its other inputs. */
export interface FamilyMember {
  readonly graph: BackwardGraph;
  readonly hookNumbers: readonly Tensor[];
}

/** Graphs that differ in numbers only. */
export class NumberFamily {
  private readonly first: Graph;
  private places: readonly Place[] = [];
  /** The latest graph, with the numbers that differed so far as inputs. */
  private latest: BackwardGraph;

  constructor(graph: Graph) {
    this.first = graph;
    this.latest = new BackwardGraph(graph);
  }

  /** What runs for a graph of the family; null for another graph. */
  memberOf(graph: Graph): FamilyMember | null {
    const differing = differences(this.first, graph);
    if (differing === null) return null;
    const added = differing.filter((at) => !this.places.some((known) => isSame(known, at)));
    if (added.length > 0) {
      this.places = [...this.places, ...added];
      this.latest = new BackwardGraph(withInputs(graph, this.places));
    }
    return { graph: this.latest, hookNumbers: this.places.map((at) => numberAt(graph, at)) };
  }
}

const isSame = (a: Place, b: Place): boolean => a.node === b.node && a.input === b.input;

function numberAt({ nodes }: Graph, { node, input }: Place): Tensor {
  const { inputs } = nodes[node] as Node;
  return (inputs[input] as Value & { number: Tensor }).number;
}

/** A copy of the graph with inputs in these places, behind the other inputs. */
function withInputs(graph: Graph, places: readonly Place[]): Graph {
  const copy = copyGraph(graph).graph;
  const nodes = [...copy.nodes];
  const first = nodes.find(({ kind }) => kind !== 'placeholder') ?? null;
  for (const { node, input } of places) {
    const placeholder = copy.add({ kind: 'placeholder', name: 'number' }, first);
    (nodes[node] as Node).inputs[input] = { node: placeholder, output: 0 };
  }
  return copy;
}

/** The places where two graphs have different numbers; null for graphs that differ otherwise. */
function differences(a: Graph, b: Graph): Place[] | null {
  if (a.nodes.length !== b.nodes.length || a.outputs.length !== b.outputs.length) return null;
  const partner = new Map(a.nodes.map((node, i) => [node, b.nodes[i] as Node]));
  const same = (x: Value | null, y: Value | null | undefined): boolean => {
    if (x === null || !y || 'number' in x || 'number' in y) return x === y;
    return partner.get(x.node) === y.node && x.output === y.output;
  };
  const places: Place[] = [];
  for (const [i, node] of a.nodes.entries()) {
    const other = b.nodes[i] as Node;
    if (!isSameStep(node, other) || node.tensor !== other.tensor) return null;
    if (!isDeepStrictEqual(node.metas, other.metas) || !same(node.into, other.into)) return null;
    if ((node.draw === null) !== (other.draw === null)) return null;
    if (node.draw !== null && partner.get(node.draw) !== other.draw) return null;
    for (const [input, value] of node.inputs.entries()) {
      const given = other.inputs[input] as Value;
      if (!('number' in value) || !('number' in given)) {
        if (!same(value, given)) return null;
      } else if (value.number.dtype !== given.number.dtype) return null;
      else if (!Object.is(value.number.scalarValue, given.number.scalarValue))
        places.push({ node: i, input });
    }
  }
  return a.outputs.every((value, i) => same(value, b.outputs[i])) ? places : null;
}
