/** Moves the communication of some gradients, and their part of the optimizer's step. */

import { Dependencies } from '../compile/graph/dependencies.js';
import type { Graph } from '../compile/graph/graph.js';
import type { Node, Value } from '../compile/graph/node.js';
import { isCollective } from '../compile/graph/traits.js';
import { sinkSomeWaits } from '../compile/passes/collectives/sink-waits.js';
import { ArgumentError } from '../core/errors.js';
import { type CommBlock, getAllCommBlocks, getCommBlock } from './comm-block.js';
import { scheduleCommWait } from './comm-wait.js';
import { findAllDescendants } from './graph-utils.js';
import type { IterGraphModule } from './iter-graph-module.js';
import { type FusedOptimizerBlock, getAllFusedOptimizerBlocks } from './optimizer-blocks.js';
import { graphOptimizationPass } from './pass-contract.js';
import { removeCopyFromOptimizer } from './remove-copy.js';
import { splitFusedOptimizer } from './split-optimizer.js';

const NAME = 'iterMoveGradsAndOptimizers';

/**
 * Moves a collective of gradients, and the part of the optimizer's step that uses them, to the next
 * iteration. The collective starts first of all there, so that the ranks communicate beside the
 * forward pass. The wait and the part of the optimizer's step come as late as they may: before the
 * first node that reads a parameter which they write. The rest of the step is divided, too: what
 * has its gradients runs while the last collective of the iteration is under way.
 *
 * @param targetCommNode - the name of the collective, such as `'allReduceFused_1'`
 * @param targetDestNode - the name of a node, such as `'relu'`, before which the wait does not
 * come. It must come before all nodes that read the parameters which the moved step writes
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
  graph.moveToNextIterBefore(moved, placesIn(graph, moved, comm, target));
});

/**
 * Where moved nodes run: the collective first of all, any other before the first node that has to
 * come behind it, or where the program wants it if that is too late.
 */
function placesIn(
  graph: Graph,
  moved: readonly Node[],
  comm: Node,
  earliest: Node,
): (node: Node) => Node {
  const dependencies = new Dependencies(graph);
  const { positionOf } = dependencies;
  const staying = graph.nodes.filter((node) => !moved.includes(node) && !isInput(node));
  const places = new Map<Node, Node>();
  for (const node of [...moved].reverse()) {
    const readers = dependencies.readers(node).flatMap((reader) => places.get(reader) ?? []);
    const other = staying.find((each) => dependencies.conflict(node, each) !== null);
    const limits = [...readers, other ?? (staying.at(-1) as Node)];
    const first = limits.reduce((a, b) => (positionOf(b) < positionOf(a) ? b : a));
    places.set(node, positionOf(first) < positionOf(earliest) ? earliest : first);
  }
  places.set(comm, staying[0] as Node);
  return (node) => places.get(node) as Node;
}

const isInput = ({ kind }: Node): boolean => kind === 'placeholder' || kind === 'constant';

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

/** Whether a value is a result of a block. */
function isResultOf(
  dependencies: Dependencies,
  { nodeList }: CommBlock,
): (value: Value) => boolean {
  const results = new Set(nodeList.map((node) => dependencies.memoryOf({ node, output: 0 })));
  return (value) => 'node' in value && results.has(dependencies.memoryOf(value));
}

/** The part of an optimizer's step that uses the results of a block, split off from the rest. */
function optimizerOf(module: IterGraphModule, comm: CommBlock): FusedOptimizerBlock {
  const isOfBlock = isResultOf(new Dependencies(module.graph), comm);
  for (const block of getAllFusedOptimizerBlocks(module)) {
    const grads = block.optim.lists.get('grads') as readonly Value[];
    const own = grads.filter(isOfBlock);
    if (own.length === 0) continue;
    if (own.length === grads.length) return block;
    const [part, rest] = splitFusedOptimizer(module, block, own);
    divideByLastCollective(module, rest);
    return part;
  }
  throw new ArgumentError(
    `${NAME}: no optimizer step uses what %${comm.commNode.name} computes. It must be the ` +
      'collective of gradients.',
    { op: NAME, node: comm.commNode.name },
  );
}

/** Divides an optimizer's step, so that one part does not wait for the last of its collectives. */
function divideByLastCollective(module: IterGraphModule, optimizer: FusedOptimizerBlock): void {
  const { graph } = module;
  const dependencies = new Dependencies(graph);
  const grads = optimizer.optim.lists.get('grads') as readonly Value[];
  for (const block of getAllCommBlocks(graph).reverse()) {
    const isLast = isResultOf(dependencies, block);
    const early = grads.filter((value) => !isLast(value));
    if (early.length === grads.length) continue;
    if (early.length > 0) splitFusedOptimizer(module, optimizer, early);
    sinkSomeWaits(graph, (wait) => block.waitNodes.includes(wait));
    return;
  }
}
