/**
 * The values of a graph as a plan needs them: by number, with what they alias and who reads them.
 */
import type { Graph } from '../graph/graph.js';
import { type NumberedSteps, numberedSteps } from '../graph/graph-module.js';
import { isView } from '../graph/traits.js';

export interface PlanValues extends NumberedSteps {
  /** The value whose memory each value has: itself unless it is a view or written in place. */
  readonly roots: readonly number[];
  /** The last step that reads each value; -1 for none, Infinity for results. */
  readonly lastReads: readonly number[];
}

export function planValues(graph: Graph): PlanValues {
  const numbered = numberedSteps(graph);
  const { steps, results, initial } = numbered;
  const roots = initial.map((_, i) => i);
  const lastReads = initial.map(() => -1);
  for (const [position, step] of steps.entries()) {
    const { inputs, into, draw, at } = step;
    for (const i of [...inputs, into, draw]) if (i >= 0) lastReads[i] = position;
    if (into >= 0) roots[at] = roots[into] as number;
    else if (isView(step.node)) roots[at] = roots[inputs[0] as number] as number;
  }
  for (const i of results) lastReads[i] = Number.POSITIVE_INFINITY;
  return { ...numbered, roots, lastReads };
}
