/**
 * Partitions the joint graph of a trace. What forward saves must do for all backward passes: the
 * one from all results, and those from some of them, which are traced when a program asks.
 */
import { checkPartition } from '../partition/check-partition.js';
import type { JointGraph, Partition } from '../partition/joint-graph.js';
import { ALL_PASSES, type JointTrace } from './joint-trace.js';
import type { Retrace } from './retrace.js';

/** Splits a joint graph into forward and backward. */
export type PartitionFunction = (joint: JointGraph) => Partition;

/** A joint graph and what a partition makes of it; null without gradients. @internal */
export interface Partitioned {
  readonly joint: JointGraph;
  readonly partition: Partition | null;
}

/**
 * The partition of a trace. `retrace`: null if all passes are the one of the trace.
 *
 * The gradient of a result may be a part of no other one: that of `x.sin().fill_(1)` is, for `x`,
 * zeros. Backward from all results then leaves out what arrives there from others, and saves
 * nothing for it. So what is partitioned is a graph of all these passes.
 *
 * @internal
 */
export function partitioned(
  { joint, roots }: JointTrace,
  partitionFn: PartitionFunction,
  retrace: Retrace | null,
): Partitioned {
  if (roots.length === 0) return { joint, partition: null };
  const split = (of: JointGraph): Partitioned & { partition: Partition } => ({
    joint: of,
    partition: checkPartition(of, partitionFn(of), partitionFn),
  });
  const whole = split(joint);
  if (retrace === null || readsTangents(whole.partition)) return whole;
  return split(retrace(ALL_PASSES).joint);
}

/** Whether the backward graph reads all the tangents that it gets. */
function readsTangents({ backward, saved }: Partition): boolean {
  const users = backward.allUsers();
  const returned = new Set(backward.outputs.map((value) => ('node' in value ? value.node : null)));
  return backward.placeholders
    .slice(saved.length)
    .every((node) => returned.has(node) || (users.get(node)?.length ?? 0) > 0);
}
