/**
 * The values of a graph as a plan needs them: by number, with what they alias and who reads them.
 */
import { isContiguousLayout, sameShape } from '../../core/shape.js';
import type { Graph } from '../graph/graph.js';
import { type NumberedSteps, numberedSteps, type Step } from '../graph/graph-module.js';
import type { ValueMeta } from '../graph/node.js';
import { isView } from '../graph/traits.js';

export interface PlanValues extends NumberedSteps {
  /** The value whose memory each value has: itself unless it is a view or written in place. */
  readonly roots: readonly number[];
  /** The last step that reads each value; -1 for none, Infinity for results. */
  readonly lastReads: readonly number[];
  /**
   * For each root, the last step that uses its memory; Infinity if it is that of a result, or if a
   * step may keep it.
   */
  readonly lastUses: readonly number[];
  /** Values before the first step whose memory nobody needs after the run. */
  readonly donated: ReadonlySet<number>;
  /** The operands that calls overwrite with their result, because nothing reads them later. */
  readonly updated: ReadonlyMap<Step, number>;
}

/** `donated`: the positions of placeholders whose memory the run may overwrite and free. */
export function planValues(graph: Graph, donated: readonly number[] = []): PlanValues {
  const numbered = numberedSteps(graph);
  const { steps, results, initial, placeholders } = numbered;
  const lastReads = initial.map(() => -1);
  for (const [position, { inputs, into, draw }] of steps.entries())
    for (const i of [...inputs, into, draw]) if (i >= 0) lastReads[i] = position;
  for (const i of results) lastReads[i] = Number.POSITIVE_INFINITY;
  const given = new Set(donated.map((i) => placeholders[i] as number));
  return { ...numbered, lastReads, donated: given, ...aliasesOf(numbered, lastReads, given) };
}

/** A collective of the library does not keep the memory that it gets. */
export const isOwnCollective = ({ node }: Step): boolean =>
  node.op?.traits.includes('collective') ?? false;

/** Whether a step may keep the memory that it gets. */
const mayKeep = (step: Step): boolean =>
  step.node.op === null || (step.node.op.compute !== null && !isOwnCollective(step));

/** What values alias, and what calls overwrite. */
function aliasesOf(
  { steps, initial, metas }: NumberedSteps,
  lastReads: readonly number[],
  donated: ReadonlySet<number>,
): Pick<PlanValues, 'roots' | 'lastUses' | 'updated'> {
  const roots = initial.map((_, i) => i);
  for (const step of steps) {
    const from = aliased(step);
    if (from >= 0) roots[step.at] = roots[from] as number;
  }
  const lastUses = usesOf(roots, lastReads);
  const owned = new Set(donated);
  for (const step of steps)
    if (aliased(step) < 0 && step.node.op?.compute === null)
      for (let i = 0; i < step.outputs; i++) owned.add(step.at + i);
  for (const step of steps)
    if (mayKeep(step))
      for (const i of [...step.inputs, step.into])
        if (i >= 0) lastUses[roots[i] as number] = Number.POSITIVE_INFINITY;
  const updated = new Map<Step, number>();
  for (const [position, step] of steps.entries()) {
    const from = aliased(step);
    if (from >= 0) roots[step.at] = roots[from] as number;
    const operand = updatedOperand(step, metas);
    if (operand < 0) continue;
    const root = roots[operand] as number;
    if (!owned.has(root) || (lastUses[root] as number) > position) continue;
    if (step.inputs.filter((i) => roots[i] === root).length > 1) continue;
    updated.set(step, operand);
    roots[step.at] = root;
    lastUses[root] = Math.max(position, lastUses[step.at] as number);
  }
  return { roots, lastUses, updated };
}

/** The value whose memory the first result of a step has; -1 if it has its own. */
function aliased({ node, inputs, into }: Step): number {
  if (into >= 0) return into;
  return isView(node) ? (inputs[0] as number) : -1;
}

/** The last step that reads the memory of each root. */
function usesOf(roots: readonly number[], lastReads: readonly number[]): number[] {
  const last = lastReads.slice();
  for (const [value, root] of roots.entries())
    last[root] = Math.max(last[root] as number, lastReads[value] as number);
  return last;
}

/**
 * The operand of a call that copies it and updates the copy, if the copy has the same layout; -1
 * for other calls.
 */
function updatedOperand({ node, inputs, into, at }: Step, metas: NumberedSteps['metas']): number {
  const { op } = node;
  if (op === null || op.updates < 0 || into >= 0) return -1;
  const operand = inputs[op.updates] as number;
  const [before, after] = [metas[operand] ?? null, metas[at] ?? null];
  return before !== null && after !== null && sameLayout(before, after) ? operand : -1;
}

function sameLayout(a: ValueMeta, b: ValueMeta): boolean {
  if (a.dtype !== b.dtype || a.placements !== null) return false;
  return sameShape(a.shape, b.shape) && [a, b].every((m) => isContiguousLayout(m.shape, m.strides));
}
