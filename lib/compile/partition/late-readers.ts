/**
 * Which pointwise nodes of forward backward must not compute again although they are cheap: those
 * that read a value when it has long been in memory for others.
 */
import type { Node } from '../graph/node.js';
import { isElementwise, isView } from '../graph/traits.js';

/**
 * The pointwise nodes that read a pointwise value behind the first use of it that no fused call
 * contains. Computing a residual stream again, whose sums are such nodes, would begin with its
 * first sum, and hold all of them for the whole of backward.
 *
 * @internal
 */
export function lateReaders(forward: readonly Node[]): Set<Node> {
  const positions = new Map(forward.map((node, i) => [node, i]));
  const readers = new Map<Node, Node[]>(forward.map((node) => [node, []]));
  for (const node of forward)
    for (const value of node.reads) if ('node' in value) readers.get(value.node)?.push(node);
  const at = (node: Node): number => positions.get(node) as number;
  const late = new Set<Node>();
  for (const used of forward) {
    const users = readers.get(used) as Node[];
    if (used.kind !== 'call' || !isFused(used) || users.length < 2) continue;
    const first = firstUnfused(users, Math.max(...users.map(at)), readers, at);
    for (const user of users) if (at(user) > first && isFused(user)) late.add(user);
  }
  return late;
}

const isFused = (node: Node): boolean => isElementwise(node) || isView(node);

/** The position of the first node behind `users` that no fused call contains with what it reads. */
function firstUnfused(
  users: readonly Node[],
  last: number,
  readers: ReadonlyMap<Node, readonly Node[]>,
  at: (node: Node) => number,
): number {
  const seen = new Set<Node>(users);
  let first = last;
  // A set of nodes that grows while it is walked.
  for (const node of seen)
    for (const reader of readers.get(node) as readonly Node[]) {
      if (at(reader) >= first) continue;
      if (isFused(node) && isFused(reader)) seen.add(reader);
      else first = at(reader);
    }
  return first;
}
