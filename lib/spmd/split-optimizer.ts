/** Divides an optimizer step into two. */
import { type Node, sameValue, type Value } from '../compile/graph/node.js';
import { ArgumentError } from '../core/errors.js';
import { callOnPart, type FusedOptimizerBlock, listsOf } from './optimizer-blocks.js';
import type { PassTarget } from './pass-contract.js';

/**
 * Divides an optimizer step, and the count of its steps, into one for the parameters with the given
 * gradients and one for the others. Both stand in the place of the old one.
 *
 * @param gradients - values of the list `grads` of the block
 * @returns the two blocks; the first is that of the given gradients
 * @throws ArgumentError if the gradients are none, all, or not those of the block
 * @see PyTorch `torch.distributed._spmd.graph_optimization.split_fused_optimizer`
 */
export function splitFusedOptimizer(
  module: PassTarget,
  block: FusedOptimizerBlock,
  gradients: readonly Value[],
): [FusedOptimizerBlock, FusedOptimizerBlock] {
  const { graph } = module;
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

function checkGradients(grads: readonly Value[], given: readonly Value[], { name }: Node): void {
  const fail = (text: string): never => {
    throw new ArgumentError(`splitFusedOptimizer: ${text}`, { node: name });
  };
  for (const value of given)
    if (!grads.some((grad) => sameValue(grad, value)))
      fail(
        `expected gradients of %${name}, got %${'node' in value ? value.node.name : 'a number'}. ` +
          "They are in block.optim.lists.get('grads').",
      );
  const chosen = grads.filter((grad) => given.some((value) => sameValue(grad, value)));
  if (chosen.length === 0 || chosen.length === grads.length)
    fail(
      `expected some of the ${grads.length} gradients of %${name}, got ` +
        `${chosen.length === 0 ? 'none' : 'all'}: both parts must have parameters.`,
    );
}

/** The positions in the count's list of the steps at some indices of the optimizer's list. */
function countsAt(addNode: Node, steps: readonly Value[], indices: readonly number[]): number[] {
  return indices.map((i) =>
    addNode.inputs.findIndex((value) => sameValue(value, steps[i] as Value)),
  );
}
