/** Which values of a graph of local ops nothing reads any more. */
import type { NumberedSteps } from './graph-module.js';

/**
 * For each step, the values that the graph makes and does not read after it. Ops of the program may
 * keep theirs, so these are not among them.
 */
export function droppedAfter({ steps, results, initial }: NumberedSteps): number[][] {
  const dropped: number[][] = steps.map(() => []);
  /** The value whose tensor each is: another one where a call writes in place. */
  const same = initial.map((_, i) => i);
  const made = new Set<number>();
  const last = new Map<number, number>();
  for (const [position, { node, inputs, into, at }] of steps.entries()) {
    for (const i of [...inputs, into]) if (i >= 0) last.set(same[i] as number, position);
    if (into >= 0) same[at] = same[into] as number;
    else if (node.op !== null && node.op.compute === null)
      for (let i = at; i < at + node.metas.length; i++) {
        made.add(i);
        last.set(i, position);
      }
  }
  const kept = new Set(results.map((i) => same[i]));
  for (const i of made) if (!kept.has(i)) dropped[last.get(i) as number]?.push(i);
  return dropped;
}
