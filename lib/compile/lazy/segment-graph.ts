/** The graph of a lazy segment: the calls on a way down the tree. */
import type { Tensor } from '../../core/tensor.js';
import { Graph } from '../graph/graph.js';
import { metaOf, type Node, type Value } from '../graph/node.js';
import { PLAIN, type TraceNode } from './trace-tree.js';

/**
 * Builds the graph. `inputs`: tensors from before the segment, by the numbers of their values. They
 * come first among the inputs of the graph, then the random states of the draws, then plain numbers
 * that differ from run to run. `outputs`: the numbers of the values that it returns.
 */
export function segmentGraph(
  path: readonly TraceNode[],
  inputs: ReadonlyMap<number, Tensor>,
  outputs: readonly number[],
): Graph {
  const graph = new Graph();
  const values = new Map<number, Value>();
  for (const [number, t] of inputs) {
    const node = graph.add({ kind: 'placeholder', name: 'arg', metas: [metaOf(t)] });
    values.set(number, { node, output: 0 });
  }
  const draws = path.map(({ params }) =>
    'seedLow' in params ? graph.add({ kind: 'placeholder', name: 'draw' }) : null,
  );
  const given = path.flatMap((step) =>
    (step.takesNumbers ? step.plain : []).flatMap((t) => t ?? []),
  );
  const plainInputs = given.map(() => graph.add({ kind: 'placeholder', name: 'number' }));
  let nextPlain = 0;
  const valueOf = (number: number): Value => values.get(number) as Value;
  path.forEach(({ op, params, numbers, plain, takesNumbers, into, first, metas, origin }, i) => {
    const plainAt = (at: number): Value =>
      takesNumbers
        ? { node: plainInputs[nextPlain++] as Node, output: 0 }
        : { number: plain[at] as Tensor };
    const node = graph.add({
      kind: 'call',
      name: op.name,
      op,
      inputs: numbers.map((number, at) => (number === PLAIN ? plainAt(at) : valueOf(number))),
      params,
      into: into < 0 ? null : valueOf(into),
      metas,
      draw: draws[i] ?? null,
      origin,
    });
    metas.forEach((_, output) => {
      values.set(first + output, { node, output });
    });
  });
  graph.outputs = outputs.map(valueOf);
  return graph;
}
