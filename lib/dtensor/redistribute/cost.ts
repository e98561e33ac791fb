/**
 * Estimates the cost of a redistribution: a latency for each collective, and the bytes that a rank
 * receives. Plans are only compared with each other, so one set of constants serves all machines.
 *
 * @see PyTorch `torch.distributed.tensor._collective_utils`: `redistribute_cost`
 */

import { chunkSize } from '../../core/chunks.js';
import { numelOf, type Shape } from '../../core/shape.js';
import { largestLocalShape } from '../spec/shard-geometry.js';
import type { DTensorSpec } from '../spec/spec.js';
import { isCollective, type Step, type StepKind } from './steps.js';

/** Microseconds of a collective of any size. */
const COLLECTIVE_LATENCY = 10;
/** Microseconds of a local step; above zero, so that the empty plan is cheapest. */
const LOCAL_LATENCY = 0.5;
/** Bytes that a rank receives per microsecond: 100 GB/s. */
const NETWORK_RATE = 100_000;
/** Bytes that a rank copies in its memory per microsecond: 1 TB/s. */
const MEMORY_RATE = 1_000_000;

/** The estimated cost of a plan. */
export interface PlanCost {
  readonly microseconds: number;
  /** The number of steps that communicate. */
  readonly collectives: number;
  /** Bytes that the busiest rank receives, by kind of step; absent kinds move nothing. */
  readonly bytes: Readonly<{ [kind in StepKind]?: number }>;
}

/** Bytes that the busiest rank receives in a step, including padding; 0 for local steps. */
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
      // as in a ring: a reduce-scatter and an all-gather
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

/** The estimated cost of a plan that begins at `from`. */
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
