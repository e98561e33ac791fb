/** The steps of a redistribution. Each changes the placement on one mesh dim. */
import type { ReduceOpName } from '../../core/placement.js';
import type { DTensorSpec } from '../spec/spec.js';

interface StepBase {
  /** The mesh dim whose placement changes and whose ranks communicate. */
  readonly meshDim: number;
  /** The spec after the step. */
  readonly after: DTensorSpec;
}

/** Shard(dim) to Replicate(): gathers the shards. */
export interface AllGatherStep extends StepBase {
  readonly kind: 'allGather';
  readonly dim: number;
}

/** Partial to Replicate(): reduces the partial values. */
export interface AllReduceStep extends StepBase {
  readonly kind: 'allReduce';
  readonly reduceOp: ReduceOpName;
}

/** Partial to Shard(dim): reduces the partial values and scatters the result. */
export interface ReduceScatterStep extends StepBase {
  readonly kind: 'reduceScatter';
  readonly reduceOp: ReduceOpName;
  readonly dim: number;
}

/** Shard(fromDim) to Shard(toDim): exchanges chunks. */
export interface AllToAllStep extends StepBase {
  readonly kind: 'allToAll';
  readonly fromDim: number;
  readonly toDim: number;
}

/** Replicate() to Shard(dim), without communication. */
export interface ChunkStep extends StepBase {
  readonly kind: 'chunk';
  readonly dim: number;
}

/**
 * Replicate() to Partial, without communication: partial values whose reduction is the replicated
 * tensor. Only gradients need it.
 */
export interface PartialFromReplicateStep extends StepBase {
  readonly kind: 'partialFromReplicate';
  readonly reduceOp: ReduceOpName;
}

/** Any placement to any other on a mesh dim of one rank: only the spec changes. */
export interface RelabelStep extends StepBase {
  readonly kind: 'relabel';
}

export type Step =
  | AllGatherStep
  | AllReduceStep
  | ReduceScatterStep
  | AllToAllStep
  | ChunkStep
  | PartialFromReplicateStep
  | RelabelStep;
export type StepKind = Step['kind'];

const collectives: ReadonlySet<StepKind> = new Set<StepKind>([
  'allGather',
  'allReduce',
  'reduceScatter',
  'allToAll',
]);

/** Whether the ranks communicate. */
export function isCollective(step: Step): boolean {
  return collectives.has(step.kind);
}
