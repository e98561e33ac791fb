/** Moves waits for collectives to where their results are needed. */

import { Dependencies } from '../compile/graph/dependencies.js';
import type { Graph } from '../compile/graph/graph.js';
import type { Node } from '../compile/graph/node.js';
import { type CommBlock, getAllCommBlocks } from './comm-block.js';
import { commFusionWithConcat } from './comm-fusion.js';
import { graphOptimizationPass, type PassTarget } from './pass-contract.js';

/**
 * Moves each wait, with the views of what it returns, to just before the first node that uses them,
 * so that nodes in between run while the ranks communicate.
 *
 * @see PyTorch `torch.distributed._spmd.graph_optimization.schedule_comm_wait`
 */
export const scheduleCommWait: (module: PassTarget) => void = graphOptimizationPass({
  prerequisites: [commFusionWithConcat],
})(function scheduleCommWait({ graph }: PassTarget): void {
  waitLate(graph, getAllCommBlocks(graph));
});

/** Moves the waits of blocks, with the views, to just before the first node that uses them. */
export function waitLate(graph: Graph, blocks: readonly CommBlock[]): void {
  // Waits and views write nothing, so that moves leave dependencies as they are.
  const { readers } = new Dependencies(graph);
  for (const { commNode, nodeList } of blocks) {
    const block = new Set(nodeList);
    const trailing = nodeList.filter((node) => node !== commNode);
    const users = new Set(trailing.flatMap(readers).filter((node) => !block.has(node)));
    const first = graph.nodes.find((node) => users.has(node));
    if (first !== undefined) for (const node of trailing) graph.moveBefore(node, first as Node);
  }
}
