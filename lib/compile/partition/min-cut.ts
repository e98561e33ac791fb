/**
 * The partition that saves the least memory for backward. What backward does not get it computes
 * again, as long as that is cheap: the choice is a minimum cut of the graph.
 */

import { optionsOf } from '../../core/options.js';
import { isCheapToRepeat, isWorthFusing } from '../fusion/candidates.js';
import { fusingDevices } from '../fusion/fuse.js';
import type { Node } from '../graph/node.js';
import { isElementwise } from '../graph/traits.js';
import { planAsTagged } from './default.js';
import { extract, isTensor, planBackward } from './extract.js';
import { type Halves, halvesOf, type JointGraph, type Partition } from './joint-graph.js';
import { lateReaders } from './late-readers.js';
import { bytesOf, Memory } from './memory.js';
import { isCostlyBesideFused, RecomputeTags } from './recomputable.js';
import { cheapestValues } from './saved-values.js';

/** Options of {@link minCutRematerializationPartition}. */
export interface MinCutOptions {
  /** Primals that live longer than the function, as parameters do, so that saving one is free. */
  parameters?: readonly Node[];
}

/**
 * Makes a joint graph two graphs, of which backward computes cheap values of forward again instead
 * of getting them. It never gets more bytes than from {@link defaultPartition}.
 *
 * Which values it gets is a minimum cut. A value weighs its bytes, times 1.1 for each step between
 * it and backward, times 2 if a compiler that fuses ops would not write it to memory.
 *
 * Never computed again: matrix products, attention, sorting, ops of users, communication, results a
 * quarter of the size of their operands, and whatever reads or is memory that changes later. Views
 * and random ops may be: the latter get the random state that they had in forward.
 *
 * Inputs are saved where values are computed from them again. Backward then refuses an input that
 * the program changed in place after forward, even if eager mode would not have saved it.
 *
 * Tags of nodes say otherwise. `mustSave` saves what backward reads. `mustRecompute` computes again
 * what can be; as `mustRecompute:a` it names a region, from which other regions get saved values,
 * and from whose values nodes of no region are not computed again. `preferSave` and
 * `preferRecompute` beside it leave a node to the choice, without and with regard to its costs.
 * `reshardAfterForward` makes backward communicate again.
 *
 * @throws CompileError, ArgumentError as {@link defaultPartition}; ArgumentError for an unknown
 * option
 * @see PyTorch `functorch.compile.min_cut_rematerialization_partition`
 */
export function minCutRematerializationPartition(
  joint: JointGraph,
  options: MinCutOptions = {},
): Partition {
  const { parameters = [] } = optionsOf('minCutRematerializationPartition', options, 'parameters');
  return minCut(joint, halvesOf(joint), new Set(parameters));
}

/**
 * The same for compilers that fuse pointwise calls: backward computes views again and those calls
 * that are fused and cheap, and nothing that has a kernel of its own.
 *
 * @internal
 */
export function minCutOfFused(joint: JointGraph): Partition {
  const halves = halvesOf(joint);
  const late = lateReaders(halves.forward);
  const hasKernels = fusingDevices();
  const isCheap = (node: Node): boolean =>
    !isElementwise(node) || (isWorthFusing(node) && isCheapToRepeat(node) && hasKernels(node));
  return minCut(
    joint,
    halves,
    new Set(),
    (node) => isCostlyBesideFused(node) || !isCheap(node) || late.has(node),
  );
}

function minCut(
  joint: JointGraph,
  halves: Halves,
  free: ReadonlySet<Node>,
  costs?: (node: Node) => boolean,
): Partition {
  const memory = new Memory(joint.graph);
  const tags = new RecomputeTags(halves.forward, memory, costs);
  const values = cheapestValues(joint, halves, memory, tags, free);
  const smallest = planBackward(joint, halves, memory, {
    saves: (value) =>
      values.saved.has(value) || tags.crosses(value) || !values.considered.has(value.node),
    savesEarly: (value) => values.saved.has(value),
  });
  const all = planAsTagged(joint, halves, memory, tags);
  const isSmaller = savedBytes(smallest, free) <= savedBytes(all, free);
  return extract(joint, halves, isSmaller ? smallest : all);
}

/** The bytes that backward gets, without those of parameters. @internal */
export function savedBytes({ saved }: Pick<Partition, 'saved'>, free: ReadonlySet<Node>): number {
  let sum = 0;
  for (const value of saved) {
    const meta = value.node.metas[value.output];
    if (meta !== undefined && isTensor(value) && !free.has(value.node)) sum += bytesOf(meta);
  }
  return sum;
}
