/** The partition that eager mode has: forward computes what the function does, and no more. */
import { extract } from './extract.js';
import { halvesOf, type JointGraph, type Partition } from './joint-graph.js';
import { Memory } from './memory.js';

/**
 * Makes a joint graph two graphs, of which forward saves what backward reads of it, as eager mode
 * does. Views are computed again from what they are views of, so no memory is saved twice. An input
 * of the function is saved as itself: backward sees what it holds by then, and so do views of it.
 *
 * Nodes that change memory, communicate or draw random numbers stay in their half and order. Random
 * states are saved, and never drawn again.
 *
 * @throws CompileError for a graph without tangents, one that uses a value before it is computed,
 * or one whose forward outputs come after the first tangent
 * @see PyTorch `functorch.compile.default_partition`
 */
export function defaultPartition(joint: JointGraph): Partition {
  return extract(joint, halvesOf(joint), new Memory(joint.graph, joint.shared), {
    saves: () => true,
    savesEarly: () => false,
  });
}
