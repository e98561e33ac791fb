/**
 * Runs a plan on the local shard of this rank. Consecutive collectives of one kind along several
 * mesh dims become one collective among the ranks of all of them.
 */
import { withPurpose } from '../../core/call-context.js';
import { chunkOf, chunksOf } from '../../core/chunks.js';
import type { CollectiveGroup } from '../../core/collective.js';
import type { AnyOp } from '../../core/op.js';
import type { ReduceOpName } from '../../core/placement.js';
import { numelOf } from '../../core/shape.js';
import type { Tensor } from '../../core/tensor.js';
import type { DeviceMesh } from '../../distributed/device-mesh/device-mesh.js';
import { meshDimName } from '../../distributed/device-mesh/layout.js';
import {
  allGatherRows,
  allReduceTensor,
  allToAllRows,
  communicatesAlong,
  reduceScatterRows,
} from '../../ops/collectives.js';
import { cat } from '../../ops/join.js';
import { groupShards } from '../spec/shard-geometry.js';
import { type DTensorSpec, formatPlacements } from '../spec/spec.js';
import { type PlanOptions, planRedistribute } from './plan.js';
import { withCause, withMeshDim } from './policy.js';
import type { AllGatherStep, AllToAllStep, ReduceScatterStep, Step } from './steps.js';

/** The state before a step. */
interface Stage {
  readonly mesh: DeviceMesh;
  readonly coordinate: readonly number[];
  readonly spec: DTensorSpec;
  /** The mesh dims whose ranks communicate; see {@link MergedStep}. */
  readonly meshDims: readonly number[];
}

/**
 * Redistributes a local shard of `from` to one of `to`. Returns the same tensor if nothing changes,
 * else a dense one.
 *
 * @throws ShardingError for a transition that is not possible
 */
export function redistributeLocal(
  local: Tensor,
  from: DTensorSpec,
  to: DTensorSpec,
  options?: PlanOptions,
): Tensor {
  const steps = planRedistribute(from, to, options);
  const mesh = from.mesh as DeviceMesh;
  const coordinate = mesh.getCoordinate();
  if (coordinate === null) return local;
  if (steps.length === 0) return local;
  const { text, merged } = mergedPlan(steps, from, to);
  const { last } = mesh.draws;
  return withPurpose(
    last === ''
      ? text
      : `${last} ${text} Before these ranks draw random numbers, either all of them call ` +
          'manualSeed() with one seed, or none does.',
    () => {
      let t = local;
      let spec = from;
      for (const { step, meshDims, names, after } of merged) {
        t = withMeshDim(names, () => runStep(step, t, { mesh, coordinate, spec, meshDims }, after));
        spec = after;
      }
      return t;
    },
  );
}

/** A plan with merged steps. */
interface MergedPlan {
  /** The purpose, which must be equal on all ranks; errors quote it. */
  readonly text: string;
  readonly merged: readonly (MergedStep & { readonly names: string })[];
}

const known = new WeakMap<readonly Step[], MergedPlan>();

function mergedPlan(steps: readonly Step[], from: DTensorSpec, to: DTensorSpec): MergedPlan {
  let found = known.get(steps);
  if (found === undefined) {
    const advice =
      'All ranks of a mesh must have a tensor in the same placements and redistribute it to ' +
      'the same ones.';
    const text =
      `to redistribute ${from.tensorInWords()} from ${from.placementsInWords()} to ` +
      `${to.placementsInWords()} on ${from.meshInWords()}\n${advice}`;
    const merged = mergeSteps(steps).map((each) => ({
      ...each,
      names: each.meshDims.map((meshDim) => meshDimName(from.mesh, meshDim)).join('_'),
    }));
    known.set(steps, (found = { text, merged }));
  }
  return found;
}

/** Redistributes the local shard of input `i` of an op. */
export function moveInput(
  op: AnyOp,
  i: number,
  local: Tensor,
  from: DTensorSpec,
  to: DTensorSpec,
): Tensor {
  return withCause(
    () =>
      `${op.name}: input ${i} from ${formatPlacements(from.placements)} to ` +
      `${formatPlacements(to.placements)}`,
    () => redistributeLocal(local, from, to),
  );
}

function runStep(step: Step, t: Tensor, stage: Stage, after: DTensorSpec): Tensor {
  switch (step.kind) {
    case 'allGather':
      return gatherShards(step, t, stage);
    case 'allReduce':
      return allReduceTensor(t, step.reduceOp, stage.mesh.groupAcross(stage.meshDims));
    case 'reduceScatter':
      return reduceToShards(step, t, stage, after);
    case 'allToAll':
      return exchangeShards(step, t, stage);
    case 'chunk': {
      const chunk = localChunk(t, step.dim, step.meshDim, stage);
      return t.narrow(step.dim, chunk.offset, chunk.size).clone();
    }
    case 'partialFromReplicate':
      return partialValue(step.reduceOp, t, stage.coordinate[step.meshDim] as number);
    case 'relabel':
      return t;
  }
}

const ranksOf = ({ mesh }: Stage, meshDim: number): number => mesh.shape[meshDim] as number;

function localChunk(
  t: Tensor,
  dim: number,
  meshDim: number,
  stage: Stage,
): { size: number; offset: number } {
  return chunkOf(
    t.sizes[dim] as number,
    ranksOf(stage, meshDim),
    stage.coordinate[meshDim] as number,
  );
}

const chunkSizes = (size: number, ranks: number): number[] =>
  chunksOf(size, ranks).map((chunk) => chunk.size);

/** Gathers along a dim. @internal */
export function gatherAlong(
  t: Tensor,
  dim: number,
  sizes: readonly number[],
  group: CollectiveGroup,
): Tensor {
  if (communicatesAlong(t, dim, sizes)) return allGatherRows(t, sizes, group, dim);
  return alongRows(t, dim, (rows) => allGatherRows(rows, sizes, group));
}

/** Reduces, and returns this rank's shard along a dim. @internal */
export function reduceScatterAlong(
  t: Tensor,
  reduceOp: ReduceOpName,
  dim: number,
  sizes: readonly number[],
  group: CollectiveGroup,
): Tensor {
  if (communicatesAlong(t, dim, sizes)) return reduceScatterRows(t, reduceOp, sizes, group, dim);
  return alongRows(t, dim, (rows) => reduceScatterRows(rows, reduceOp, sizes, group));
}

/** Collectives work along dim 0, so another dim is transposed to the front. @internal */
export function alongRows(t: Tensor, dim: number, run: (rows: Tensor) => Tensor): Tensor {
  if (dim === 0) return run(t);
  return run(t.transpose(0, dim).contiguous()).transpose(0, dim).contiguous();
}

function gatherShards(
  { dim }: AllGatherStep,
  t: Tensor,
  { mesh, coordinate, spec, meshDims }: Stage,
): Tensor {
  const { sizes, order } = groupShards(spec, coordinate, meshDims, dim);
  const group = mesh.groupAcross(meshDims);
  if (order === null) return gatherAlong(t, dim, sizes, group);
  return alongRows(t, dim, (rows) => {
    const joined = allGatherRows(rows, sizes, group);
    const shards = joined.split(sizes);
    return cat(order.map((rank) => shards[rank] as Tensor));
  });
}

function reduceToShards(
  { dim, reduceOp }: ReduceScatterStep,
  t: Tensor,
  { mesh, coordinate, meshDims }: Stage,
  after: DTensorSpec,
): Tensor {
  const { sizes, offsets, order } = groupShards(after, coordinate, meshDims, dim);
  const group = mesh.groupAcross(meshDims);
  if (order === null) return reduceScatterAlong(t, reduceOp, dim, sizes, group);
  return alongRows(t, dim, (rows) => {
    const sent = cat(sizes.map((size, i) => rows.narrow(0, offsets[i] as number, size)));
    return reduceScatterRows(sent, reduceOp, sizes, group);
  });
}

/**
 * Each rank splits its shard along `toDim` and concatenates the received chunks along `fromDim`.
 */
function exchangeShards(
  { meshDim, fromDim, toDim }: AllToAllStep,
  t: Tensor,
  stage: Stage,
): Tensor {
  const own = stage.coordinate[meshDim] as number;
  const given = chunkSizes(t.sizes[toDim] as number, ranksOf(stage, meshDim));
  const taken = groupShards(stage.spec, stage.coordinate, stage.meshDims, fromDim).sizes;
  const flat = t.split(given, toDim).map((chunk) => chunk.reshape([-1]));
  const shapes = taken.map((size) =>
    t.sizes.map((n, dim) => (dim === fromDim ? size : dim === toDim ? (given[own] as number) : n)),
  );
  const counts = shapes.map(numelOf);
  const sent = flat.map((chunk) => chunk.numel());
  const received = allToAllRows(cat(flat), sent, counts, stage.mesh.getGroup(meshDim));
  return cat(
    received.split(counts).map((shard, rank) => shard.view(shapes[rank] as number[])),
    fromDim,
  );
}

/** The partial value of a rank, such that the reduction of all is `t`. */
function partialValue(reduceOp: string, t: Tensor, rank: number): Tensor {
  if (rank === 0 || reduceOp === 'avg' || reduceOp === 'min' || reduceOp === 'max') return t;
  return reduceOp === 'sum' ? t.zerosLike() : t.zerosLike().add(1);
}

/** A step, or several that differ only in their mesh dim. */
export interface MergedStep {
  /** The first of the steps. */
  readonly step: Step;
  /** The mesh dims whose ranks communicate, in shard order. */
  readonly meshDims: readonly number[];
  /** The spec after the steps. */
  readonly after: DTensorSpec;
}

/**
 * Merges consecutive steps into one collective of a larger group. This is exact for uneven shards
 * too, because each rank knows the sizes of all.
 *
 * @see PyTorch, which merges along mesh dims that the program has flattened
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

/** The innermost mesh dim is gathered first and scattered last. */
function inOrder(step: Step, before: readonly number[]): readonly number[] {
  return step.kind === 'allGather' ? [step.meshDim, ...before] : [...before, step.meshDim];
}
