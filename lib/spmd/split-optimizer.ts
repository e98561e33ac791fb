/** Divides an optimizer step into two. */
import type { Graph } from '../compile/graph/graph.js';
import { Node, sameValue, type Value } from '../compile/graph/node.js';
import { printValue } from '../compile/graph/print.js';
import { ArgumentError } from '../core/errors.js';
import { shown, unexpected } from '../core/options.js';
import { callOnPart, type FusedOptimizerBlock, listsOf } from './optimizer-blocks.js';
import { checkTarget, type PassTarget } from './pass-contract.js';

const NAME = 'splitFusedOptimizer';

/**
 * Divides an optimizer step, and the count of its steps, into one for the parameters with the given
 * gradients and one for the others. Both stand in the place of the old one.
 *
 * @param gradients - values of the list `grads` of the block
 * @returns the two blocks; the first is that of the given gradients
 * @throws ArgumentError for what has no graph, for what is no block of this graph, such as one that was divided before,
 * and if the gradients are none, all, or not those of the block
 * @see PyTorch `torch.distributed._spmd.graph_optimization.split_fused_optimizer`
 */
export function splitFusedOptimizer(
  module: PassTarget,
  block: FusedOptimizerBlock,
  gradients: readonly Value[],
): [FusedOptimizerBlock, FusedOptimizerBlock] {
  checkTarget(NAME, module);
  const { graph } = module;
  checkBlock(graph, block);
  const { step, optim } = block;
  const { optimNode, lists } = optim;
  const grads = lists.get('grads') as readonly Value[];
  checkGradients(grads, gradients, optimNode);
  const isChosen = grads.map((grad) => gradients.some((chosen) => sameValue(chosen, grad)));
  const steps = lists.get('steps') ?? [];
  const blockOf = (chosen: boolean): FusedOptimizerBlock => {
    const indices = grads.flatMap((_, i) => (isChosen[i] === chosen ? [i] : []));
    const { addNode } = step;
    const counts = addNode === null ? [] : countsAt(addNode, steps, indices);
    const part = callOnPart(graph, optimNode, indices);
    return {
      step: { addNode: addNode === null ? null : callOnPart(graph, addNode, counts) },
      optim: { optimNode: part, lists: listsOf(part) },
    };
  };
  const blocks: [FusedOptimizerBlock, FusedOptimizerBlock] = [blockOf(true), blockOf(false)];
  graph.erase(optimNode);
  if (step.addNode !== null) graph.erase(step.addNode);
  return blocks;
}

/** @throws ArgumentError for what is no block, and for one of another graph */
function checkBlock(graph: Graph, given: unknown): void {
  const { step, optim } = (given ?? {}) as Partial<FusedOptimizerBlock>;
  const { optimNode, lists } = optim ?? {};
  if (step === undefined || !(optimNode instanceof Node) || !lists?.has('grads'))
    throw unexpected(NAME, 'block', 'one of getAllFusedOptimizerBlocks(module)', given);
  for (const node of [optimNode, step.addNode])
    if (node != null && !graph.nodes.includes(node))
      throw new ArgumentError(
        `${NAME}: expected a block of this graph, got one of %${node.name}, which is not in it, ` +
          'as after the block was divided. Find blocks anew by getAllFusedOptimizerBlocks(module).',
        { node: node.name },
      );
}

function checkGradients(grads: readonly Value[], given: readonly Value[], { name }: Node): void {
  const fail = (text: string): never => {
    throw new ArgumentError(`${NAME}: ${text}`, { node: name });
  };
  if (!Array.isArray(given))
    throw unexpected(
      NAME,
      'gradients',
      "a list of values of block.optim.lists.get('grads')",
      given,
    );
  for (const value of given as readonly unknown[])
    if (!isValue(value) || !grads.some((grad) => sameValue(grad, value)))
      fail(
        `expected gradients of %${name}, got ` +
          `${isValue(value) ? printValue(value) : shown(value)}. They are in ` +
          "block.optim.lists.get('grads').",
      );
  const chosen = grads.filter((grad) => given.some((value) => sameValue(grad, value)));
  if (chosen.length === 0 || chosen.length === grads.length)
    fail(
      `expected some of the ${grads.length} gradients of %${name}, got ` +
        `${chosen.length === 0 ? 'none' : 'all'}: both parts must have parameters.`,
    );
}

const isValue = (given: unknown): given is Value =>
  typeof given === 'object' && given !== null && ('node' in given || 'number' in given);

/** The positions in the count's list of the steps at some indices of the optimizer's list. */
function countsAt(addNode: Node, steps: readonly Value[], indices: readonly number[]): number[] {
  return indices.map((i) =>
    addNode.inputs.findIndex((value) => sameValue(value, steps[i] as Value)),
  );
}
