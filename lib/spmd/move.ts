/** Moves the communication of some gradients, and their part of the optimizer's step. */
import type { Node, Value } from '../compile/graph/node.js';
import { ArgumentError } from '../core/errors.js';
import { type CommBlock, getCommBlock, isCollective } from './comm-block.js';
import { scheduleCommWait } from './comm-wait.js';
import { Dependencies } from './dependencies.js';
import { findAllDescendants } from './graph-utils.js';
import type { IterGraphModule } from './iter-graph-module.js';
import { type FusedOptimizerBlock, getAllFusedOptimizerBlocks } from './optimizer-blocks.js';
import { graphOptimizationPass } from './pass-contract.js';
import { removeCopyFromOptimizer } from './remove-copy.js';
import { splitFusedOptimizer } from './split-optimizer.js';

const NAME = 'iterMoveGradsAndOptimizers';

/**
 * Moves a collective of gradients, and the part of the optimizer's step that uses them, to the next
 * iteration, before a node of it: the ranks communicate while the next forward pass begins.
 *
 * @param targetCommNode - the name of the collective, such as `'allReduceFused_1'`
 * @param targetDestNode - the name of the node that the parts come before, such as `'relu'`. It must
 * come before all nodes that use the parameters which the moved step writes
 * @throws ArgumentError for names that are not in the graph, and for a collective that no optimizer
 * uses; CompileError for a parameter that would be read before it is written
 * @see PyTorch `torch.distributed._spmd.graph_optimization.iter_move_grads_and_optimizers`
 */
export const iterMoveGradsAndOptimizers: (
  module: IterGraphModule,
  targetCommNode: string,
  targetDestNode: string,
) => void = graphOptimizationPass({
  prerequisites: [removeCopyFromOptimizer],
  applyAfter: [scheduleCommWait],
})(function iterMoveGradsAndOptimizers(
  module: IterGraphModule,
  targetCommNode: string,
  targetDestNode: string,
): void {
  const { graph } = module;
  const comm = named(graph.nodes, targetCommNode, 'targetCommNode', isCollective);
  const target = named(graph.nodes, targetDestNode, 'targetDestNode', () => true);
  const optimizer = optimizerOf(module, getCommBlock(graph, comm));
  const { addNode } = optimizer.step;
  const moved = findAllDescendants(module, addNode === null ? [comm] : [comm, addNode]);
  graph.moveToNextIterBefore(moved, target);
});

function named(
  nodes: readonly Node[],
  name: string,
  argument: string,
  fits: (node: Node) => boolean,
): Node {
  const found = nodes.find((node) => node.name === name && fits(node));
  if (found !== undefined) return found;
  const known = nodes.filter(fits).map((node) => node.name);
  throw new ArgumentError(
    `${NAME}: expected ${argument} to be the name of a node, got ${JSON.stringify(name)}. ` +
      `Names: ${known.slice(0, 20).join(', ')}${known.length > 20 ? ', ...' : ''}`,
    { op: NAME, argument, given: name },
  );
}

/** The part of an optimizer's step that uses the results of the block, split off where it is not alone. */
function optimizerOf(
  module: IterGraphModule,
  { nodeList, commNode }: CommBlock,
): FusedOptimizerBlock {
  const dependencies = new Dependencies(module.graph);
  const results = new Set(nodeList.map((node) => dependencies.memoryOf({ node, output: 0 })));
  const isOfBlock = (value: Value): boolean =>
    'node' in value && results.has(dependencies.memoryOf(value));
  for (const block of getAllFusedOptimizerBlocks(module)) {
    const grads = block.optim.lists.get('grads') as readonly Value[];
    const own = grads.filter(isOfBlock);
    if (own.length === 0) continue;
    return own.length === grads.length ? block : splitFusedOptimizer(module, block, own)[0];
  }
  throw new ArgumentError(
    `${NAME}: no optimizer step uses what %${commNode.name} computes. It must be the collective of ` +
      'gradients.',
    { op: NAME, node: commNode.name },
  );
}
