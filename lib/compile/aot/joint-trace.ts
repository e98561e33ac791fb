/** What the trace of a front graph is: its joint graph, and what a run needs beside it. */
import type { Sharding } from '../../core/sharding.js';
import type { Tensor } from '../../core/tensor.js';
import type { AttributeSet } from '../capture/epilogue.js';
import type { JointGraph } from '../partition/joint-graph.js';
import type { LeafSource, OutputSource } from './output-sources.js';

/** A differentiable result: the gradient that it gets is a tangent of the joint graph. @internal */
export interface Root {
  /** The source of the result; a primal if the function changed an input in place. */
  readonly source: OutputSource;
  /** A tensor without memory, with the shape and strides that the local tangent must have. */
  readonly like: Tensor;
  readonly sharding: Sharding | null;
}

/** A gradient that backward returns. @internal */
export interface GradientValue {
  /** Which result of backward; -1 if no gradient arrives. */
  readonly at: number;
  readonly sharding: Sharding | null;
}

/** The gradient of a primal, or of a leaf that the function makes. @internal */
export interface PrimalGradient extends GradientValue {
  /** The index among the primals of the front graph, or the leaf. */
  readonly of: number | LeafSource;
  /** Its position among all that the function has: a pass may come to them in another order. */
  readonly target: number;
}

/** The backward pass that a trace runs. @internal */
export interface TracedPass {
  /** The roots that get a gradient, by position; null for all. */
  readonly roots: readonly number[] | null;
  /** Whether it ends at other roots and at views, and returns what arrives there. */
  readonly endsAtResults: boolean;
}

/** The pass in which all results have gradients. @internal */
export const WHOLE_PASS: TracedPass = { roots: null, endsAtResults: false };

/** That pass, and those of single results to the others, in one graph. @internal */
export const ALL_PASSES: TracedPass = { roots: null, endsAtResults: true };

/** The changes that the version of a primal counts. @internal */
export interface VersionChanges {
  readonly primal: number;
  readonly changes: number;
}

/** A traced front graph. @internal */
export interface JointTrace {
  readonly joint: JointGraph;
  /** For each primal of the joint graph, the index of its tensor among those of the front graph. */
  readonly locals: readonly number[];
  /** The indices of distributed tensors that are primals as they are, behind the others. */
  readonly wholes: readonly number[];
  /**
   * One for each result of the front graph, then those of attributes, and of tensors that results
   * are views of; equal ones are one object.
   */
  readonly outputs: readonly OutputSource[];
  /** How many of them are results of the front graph. */
  readonly outputCount: number;
  /** The attributes of modules that a run sets at its end, with the sources of tensors. */
  readonly attributes: readonly (readonly [set: AttributeSet, source: OutputSource | null])[];
  /** The tensors, no leaves, whose gradients are kept. */
  readonly retained: readonly OutputSource[];
  readonly roots: readonly Root[];
  readonly gradients: readonly PrimalGradient[];
  /** The results with a history that a run makes as views: they are no roots. */
  readonly views: readonly OutputSource[];
  /** What arrives at each root and view, if the pass ends there; else empty. */
  readonly ends: readonly GradientValue[];
  /** The primals that were results of collectives, and that the function waits for. */
  readonly waited: readonly number[];
  /**
   * The versions of the primals, where the lowered graph may count others: it changes `data` as the
   * tensor itself.
   */
  readonly versions: readonly VersionChanges[];
}

/**
 * Whether a result may have been computed from another one: not if there is one with a history, nor
 * if the other one is a view of it. @internal
 */
export function hasOtherPasses({ roots, views }: JointTrace): boolean {
  if (roots.length + views.length < 2) return false;
  return roots.length > 1 || views.length > 1 || views[0]?.kind !== 'alias';
}
