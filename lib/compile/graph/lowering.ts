/**
 * Why graphs run op by op through autograd although their backend lowers graphs, for reports: what
 * a graph of local ops cannot repeat does not stop the program.
 */
import type { Refusal } from '../capture-record.js';
import type { Graph } from './graph.js';

const refusals = new WeakMap<Graph, Refusal>();
/** The dynamic graphs of copies at sizes. */
const dynamic = new WeakMap<Graph, Graph>();

/** Remembers why a graph cannot be lowered. @internal */
export function refuseLowering(graph: Graph, refusal: Refusal): void {
  refusals.set(dynamic.get(graph) ?? graph, refusal);
}

/** Why the graph, or a copy of it at sizes, was not lowered; null if it was. @internal */
export const whyNotLowered = (graph: Graph): Refusal | null => refusals.get(graph) ?? null;

/** Reports of the copy are those of the graph. Returns the copy. @internal */
export function atSizesOf(graph: Graph, copy: Graph): Graph {
  dynamic.set(copy, graph);
  return copy;
}
