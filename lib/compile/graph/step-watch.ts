/** The seam where a timeline sees the nodes that graphs run. */
import type { RunValue } from './effects.js';
import type { Step } from './graph-module.js';

/** Runs nodes in place of a graph, which gives it what `run` does. @internal */
export interface StepWatch {
  /** `steps`: the node that runs, or those whose commands were encoded together. */
  around(steps: readonly Step[], values: readonly RunValue[], run: () => void): void;
}

/** Who watches; null unless a timeline is recorded. @internal */
export const stepWatch: { current: StepWatch | null } = { current: null };
