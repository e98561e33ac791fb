/**
 * Plans as they are carried out: collectives of one kind that follow each other along several mesh
 * dims are one among the ranks of all of them.
 */

import type { DTensorSpec } from '../spec/spec.js';
import type { Step } from './steps.js';

/** A step, or several that differ in their mesh dim alone. */
export interface MergedStep {
  /** The first of them. */
  readonly step: Step;
  /** Among whose ranks it communicates: the dim that cuts a tensor dim first comes first. */
  readonly meshDims: readonly number[];
  /** The spec that it leaves. */
  readonly after: DTensorSpec;
}

/**
 * Pieces of pieces lie behind each other as one gather of all ranks joins them, uneven ones as
 * well, because each rank knows the sizes of all.
 *
 * @see PyTorch, which does so along mesh dims that the program has flattened
 */
export function mergeSteps(steps: readonly Step[]): readonly MergedStep[] {
  const merged: MergedStep[] = [];
  for (const step of steps) {
    const last = merged.at(-1);
    if (last === undefined || !alike(last.step, step))
      merged.push({ step, meshDims: [step.meshDim], after: step.after });
    else
      merged[merged.length - 1] = {
        step: last.step,
        meshDims: inOrder(step, last.meshDims),
        after: step.after,
      };
  }
  return merged;
}

function alike(a: Step, b: Step): boolean {
  if (a.kind === 'allReduce') return b.kind === 'allReduce' && a.reduceOp === b.reduceOp;
  if (a.kind === 'reduceScatter')
    return b.kind === 'reduceScatter' && a.reduceOp === b.reduceOp && a.dim === b.dim;
  return a.kind === 'allGather' && b.kind === 'allGather' && a.dim === b.dim;
}

/** What cut last is joined first, and cut again last. */
function inOrder(step: Step, before: readonly number[]): readonly number[] {
  return step.kind === 'allGather' ? [step.meshDim, ...before] : [...before, step.meshDim];
}
