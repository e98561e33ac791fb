/** What backward of a compiled function leads to. */
import { aheadOf } from '../../autograd/ahead.js';
import { type Edge, Node } from '../../autograd/node.js';
import { CompileError } from '../../core/errors.js';
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

/** Where a pass ends: what is in front of it belongs to other passes. */
class PassEnd extends Node {
  readonly name = 'PassEnd';

  apply(): never {
    throw new CompileError('backward ran across the end of a pass');
  }
}

/**
 * Makes the passes from `roots` end at these places: one new edge for each, at which the gradient
 * arrives. It changes the tape, which must be that of a trace. @internal
 */
export function endsAt(roots: readonly Edge[], places: readonly Edge[]): Edge[] {
  const ends = places.map(() => ({ node: new PassEnd(1, []), outputNr: 0 }));
  const seen = new Set<Node>();
  const queue = roots.map(({ node }) => node);
  for (let node = queue.pop(); node !== undefined; node = queue.pop()) {
    if (seen.has(node)) continue;
    seen.add(node);
    const { edges } = node;
    for (const [i, edge] of edges.entries()) {
      if (edge === null) continue;
      const at = places.findIndex((p) => p.node === edge.node && p.outputNr === edge.outputNr);
      if (at < 0) queue.push(edge.node);
      else edges[i] = ends[at] as Edge;
    }
  }
  return ends;
}
