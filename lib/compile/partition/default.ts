/** The default partition: forward computes and saves what it does eagerly, and so does backward. */
import { extract } from './extract.js';
import { isOfBackward, type JointGraph, type Partition } from './joint-graph.js';

/**
 * Splits a joint graph where the program does: what the engine computes is backward, the rest is
 * forward, and saved is what the rules of gradients read, so memory is that of the eager tape.
 *
 * @see PyTorch `torch._functorch.partitioners.default_partition`, which moves to forward what
 * backward computes without a tangent
 */
export function defaultPartition(joint: JointGraph): Partition {
  const { nodes } = joint.graph;
  const late = nodes.filter((n) => isOfBackward(joint, n));
  const set = new Set(late);
  return extract(
    joint,
    nodes.filter((n) => !set.has(n)),
    late.filter((n) => !joint.tangents.includes(n)),
  );
}
