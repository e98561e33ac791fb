/** The single steps that redistributions are made of. Each changes one mesh dim. */
import type { ReduceOpName } from '../../core/placement.js';
import type { DTensorSpec } from '../spec/spec.js';

interface Common {
  /** The mesh dim that it changes, and among whose ranks it communicates. */
  readonly meshDim: number;
  /** The spec that it leaves. */
  readonly after: DTensorSpec;
}

/** Shard(dim) to Replicate(): the pieces are joined. */
export interface AllGatherStep extends Common {
  readonly kind: 'allGather';
  readonly dim: number;
}

/** Partial to Replicate(): the terms are reduced. */
export interface AllReduceStep extends Common {
  readonly kind: 'allReduce';
  readonly reduceOp: ReduceOpName;
}

/** Partial to Shard(dim): the terms are reduced, each rank gets a piece. */
export interface ReduceScatterStep extends Common {
  readonly kind: 'reduceScatter';
  readonly reduceOp: ReduceOpName;
  readonly dim: number;
}

/** Shard(fromDim) to Shard(toDim). */
export interface AllToAllStep extends Common {
  readonly kind: 'allToAll';
  readonly fromDim: number;
  readonly toDim: number;
}

/** Replicate() to Shard(dim), without communication. */
export interface ChunkStep extends Common {
  readonly kind: 'chunk';
  readonly dim: number;
}

/**
 * Replicate() to Partial, without communication: terms whose reduction is what each rank has.
 * Internal, for gradients.
 */
export interface PartialFromReplicateStep extends Common {
  readonly kind: 'partialFromReplicate';
  readonly reduceOp: ReduceOpName;
}

/** Any placement to any other among one rank: nothing moves and nothing changes but the spec. */
export interface RelabelStep extends Common {
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

/** Whether the ranks exchange anything. */
export function isCollective(step: Step): boolean {
  return collectives.has(step.kind);
}
