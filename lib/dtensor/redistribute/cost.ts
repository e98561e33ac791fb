/**
 * What a redistribution is estimated to cost. Only the comparison of two plans counts, so one set
 * of constants serves all machines: a collective costs its start, and the bytes that a rank
 * receives.
 *
 * @see PyTorch `torch.distributed.tensor._collective_utils`: `redistribute_cost`
 */
import { numelOf, type Shape } from '../../core/shape.js';
import { chunkSize, largestLocalShape } from '../spec/shard-geometry.js';
import type { DTensorSpec } from '../spec/spec.js';
import { isCollective, type Step, type StepKind } from './steps.js';

/** Microseconds that a collective takes whatever its size. */
const COLLECTIVE_LATENCY = 10;
/** The same for a step that moves nothing: above zero, so that doing nothing is best. */
const LOCAL_LATENCY = 0.5;
/** Bytes that a rank receives in a microsecond: 100 GB/s. */
const NETWORK_RATE = 100_000;
/** Bytes that a rank copies in its own memory in a microsecond: 1 TB/s. */
const MEMORY_RATE = 1_000_000;

/** An estimate of a plan. */
export interface PlanCost {
  readonly microseconds: number;
  /** How many steps communicate. */
  readonly collectives: number;
  /**
   * Bytes that the busiest rank receives, by the kind of step; kinds that are missing move nothing.
   */
  readonly bytes: Readonly<{ [kind in StepKind]?: number }>;
}

/**
 * Bytes that the busiest rank receives in a step, with the padding of uneven pieces; 0 for local
 * steps.
 */
export function stepBytes(step: Step, before: DTensorSpec): number {
  const ranks = before.mesh.shape[step.meshDim] as number;
  return (ranks - 1) * blockNumel(step, largestLocalShape(before), ranks) * before.dtype.itemsize;
}

/** Elements that two ranks exchange, in each direction. */
function blockNumel(step: Step, local: Shape, ranks: number): number {
  switch (step.kind) {
    case 'allGather':
      return numelOf(local);
    case 'allReduce':
      // As a ring does it: a reduce-scatter and an all-gather.
      return 2 * chunkSize(numelOf(local), ranks);
    case 'reduceScatter':
      return numelOf(chunkedShape(local, step.dim, ranks));
    case 'allToAll':
      return numelOf(chunkedShape(local, step.toDim, ranks));
    default:
      return 0;
  }
}

function chunkedShape(local: Shape, dim: number, ranks: number): Shape {
  return local.map((size, i) => (i === dim ? chunkSize(size, ranks) : size));
}

/** What a plan from `from` costs. */
export function planCost(from: DTensorSpec, steps: readonly Step[]): PlanCost {
  const bytes: { [kind in StepKind]?: number } = {};
  let microseconds = 0;
  let collectives = 0;
  let before = from;
  for (const step of steps) {
    const received = stepBytes(step, before);
    if (isCollective(step)) {
      bytes[step.kind] = (bytes[step.kind] ?? 0) + received;
      collectives++;
      microseconds += COLLECTIVE_LATENCY + received / NETWORK_RATE;
    } else microseconds += LOCAL_LATENCY + copiedBytes(step) / MEMORY_RATE;
    before = step.after;
  }
  return { microseconds, collectives, bytes };
}

function copiedBytes(step: Step): number {
  return step.kind === 'relabel'
    ? 0
    : numelOf(largestLocalShape(step.after)) * step.after.dtype.itemsize;
}
