/** The partition that eager mode has: forward computes what the function does, and no more. */
import { type BackwardPlan, extract, planBackward } from './extract.js';
import { type Halves, halvesOf, type JointGraph, type Partition } from './joint-graph.js';
import { Memory } from './memory.js';
import { RecomputeTags } from './recomputable.js';

/**
 * Makes a joint graph two graphs, of which forward saves what backward reads of it, as eager mode
 * does. Views are computed again from what they are views of, so no memory is saved twice. An input
 * of the function is saved as itself: backward sees what it holds by then, and so do views of it.
 *
 * Nodes with the tag `mustRecompute`, as those of checkpoints have, are computed again from what
 * their region reads, except those with `mustSave` or `preferSave`; collectives with
 * `reshardAfterForward` communicate again.
 *
 * Other nodes that change memory, communicate or draw random numbers stay in their half and order.
 * Random states are saved, and never drawn again.
 *
 * @throws ArgumentError for what is no joint graph; CompileError for a graph without tangents, one
 * that uses a value before it is computed, or one whose forward outputs come after the first
 * tangent
 * @see PyTorch `functorch.compile.default_partition`
 */
export function defaultPartition(joint: JointGraph): Partition {
  const halves = halvesOf(joint);
  const memory = new Memory(joint.graph);
  const tags = new RecomputeTags(halves.forward, memory);
  return extract(joint, halves, planAsTagged(joint, halves, memory, tags));
}

/** Saves all but what tags say. @internal */
export function planAsTagged(
  joint: JointGraph,
  halves: Halves,
  memory: Memory,
  tags: RecomputeTags,
): BackwardPlan {
  return planBackward(joint, halves, memory, {
    saves: (value) => tags.crosses(value) || !tags.isRecomputed(value.node),
    savesEarly: () => false,
  });
}
