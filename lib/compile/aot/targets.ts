/** What backward of a compiled function leads to. */
import { aheadOf } from '../../autograd/ahead.js';
import type { Edge } from '../../autograd/node.js';
import type { LeafSource } from './output-sources.js';

/** A primal or a new leaf that may get a gradient, and where its gradient arrives. @internal */
export interface Target {
  /** The index among the primals of the front graph, or the leaf. */
  readonly of: number | LeafSource;
  readonly edge: Edge;
}

/**
 * The targets that the tape leads to from these roots. The compiled function has no edges to
 * others: a pass that asks for their gradients only must not run it. @internal
 */
export function reached(roots: readonly Edge[], targets: readonly Target[]): Target[] {
  const { receiving } = aheadOf(roots, new Set(targets.map(({ edge }) => edge.node)));
  return targets.filter(({ edge }) => receiving.has(edge.node));
}

/**
 * Fills with the targets as a pass comes to them. A run gives leaves their gradients in this order,
 * as the program does: data parallelism reduces them so. @internal
 */
export function arrivalsAt(targets: readonly Target[]): readonly Target[] {
  const arrivals: Target[] = [];
  for (const target of targets) target.edge.node.addObserver(() => arrivals.push(target));
  return arrivals;
}
