/** Removes copies that an optimizer makes and nobody reads. */

import { Dependencies } from '../compile/graph/dependencies.js';
import type { Graph } from '../compile/graph/graph.js';
import type { Node } from '../compile/graph/node.js';
import { writtenValues } from '../compile/partition/memory.js';
import { graphOptimizationPass, type PassTarget } from './pass-contract.js';

/**
 * Removes calls in place on memory of the graph that nothing reads later. Optimizers in plain ops
 * leave such calls; those that write parameters and state stay.
 *
 * @returns the number of removed calls
 * @see PyTorch `torch.distributed._spmd.graph_optimization.remove_copy_from_optimizer`
 */
export const removeCopyFromOptimizer: (module: PassTarget) => number = graphOptimizationPass()(
  function removeCopyFromOptimizer({ graph }: PassTarget): number {
    let count = 0;
    for (let node = deadWrite(graph); node !== undefined; node = deadWrite(graph)) {
      graph.erase(node);
      count++;
    }
    return count;
  },
);

/** A call in place whose result, and whose memory, nothing reads after it. */
function deadWrite(graph: Graph): Node | undefined {
  const dependencies = new Dependencies(graph);
  const results = graph.outputs.flatMap((v) => ('node' in v ? [dependencies.memoryOf(v)] : []));
  const lasting = new Set([
    ...results,
    ...graph.nodes
      .filter(({ kind }) => kind === 'placeholder' || kind === 'constant')
      .map((node) => dependencies.memoryOf({ node, output: 0 })),
  ]);
  return graph.nodes.findLast(
    (node) =>
      node.into !== null &&
      dependencies.readers(node).length === 0 &&
      writtenValues(node).every((value) => !lasting.has(dependencies.memoryOf(value))),
  );
}
