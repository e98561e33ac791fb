/** Carries out plans: what this rank has becomes what it shall have. */
import { onPurpose } from '../../core/collective.js';
import type { AnyOp } from '../../core/op.js';
import { numelOf } from '../../core/shape.js';
import type { Tensor } from '../../core/tensor.js';
import type { DeviceMesh } from '../../distributed/device-mesh/device-mesh.js';
import { meshDimName } from '../../distributed/device-mesh/layout.js';
import {
  allGatherRows,
  allReduceTensor,
  allToAllRows,
  reduceScatterRows,
} from '../../ops/collectives.js';
import { cat } from '../../ops/join.js';
import { chunkOf, chunksOf, groupShards } from '../spec/shard-geometry.js';
import { type DTensorSpec, formatPlacements } from '../spec/spec.js';
import { type PlanOptions, planRedistribute } from './plan.js';
import { along, because } from './policy.js';
import type { AllGatherStep, AllToAllStep, ReduceScatterStep, Step } from './steps.js';

/** Where a step starts. */
interface Stage {
  readonly mesh: DeviceMesh;
  readonly coordinate: readonly number[];
  readonly spec: DTensorSpec;
  /** Among whose ranks it communicates: see {@link MergedStep}. */
  readonly meshDims: readonly number[];
}

/**
 * The part of `to` from the part of `from`: itself if nothing changes, else a dense tensor.
 *
 * @throws ShardingError for a transition that there is not
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
  return onPurpose(
    last === ''
      ? text
      : `${last} ${text} Before these ranks draw random numbers, either all of them call manualSeed() with one seed, or none does.`,
    () => {
      let t = local;
      let spec = from;
      for (const { step, meshDims, names, after } of merged) {
        t = along(names, () => runStep(step, t, { mesh, coordinate, spec, meshDims }, after));
        spec = after;
      }
      return t;
    },
  );
}

/** A plan as it is carried out. */
interface MergedPlan {
  /** What all ranks must have in common. */
  readonly text: string;
  readonly merged: readonly (MergedStep & { readonly names: string })[];
}

const known = new WeakMap<readonly Step[], MergedPlan>();

function mergedPlan(steps: readonly Step[], from: DTensorSpec, to: DTensorSpec): MergedPlan {
  let found = known.get(steps);
  if (found === undefined) {
    const advice =
      'All ranks of a mesh must have a tensor in the same placements and redistribute it to the same ones.';
    const text = `to redistribute ${from.tensorInWords()} from ${from.placementsInWords()} to ${to.placementsInWords()} on ${from.meshInWords()}\n${advice}`;
    const merged = mergeSteps(steps).map((each) => ({
      ...each,
      names: each.meshDims.map((meshDim) => meshDimName(from.mesh, meshDim)).join('_'),
    }));
    known.set(steps, (found = { text, merged }));
  }
  return found;
}

/** What this rank holds of an input, as an op needs it. */
export function moveInput(
  op: AnyOp,
  i: number,
  local: Tensor,
  from: DTensorSpec,
  to: DTensorSpec,
): Tensor {
  return because(
    () =>
      `${op.name}: input ${i} from ${formatPlacements(from.placements)} to ${formatPlacements(to.placements)}`,
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
    t.shape[dim] as number,
    ranksOf(stage, meshDim),
    stage.coordinate[meshDim] as number,
  );
}

const chunkSizes = (size: number, ranks: number): number[] =>
  chunksOf(size, ranks).map((chunk) => chunk.size);

/** Collectives cut and join rows: another dim takes their place meanwhile. @internal */
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
  return alongRows(t, dim, (rows) => {
    const joined = allGatherRows(rows, sizes, mesh.groupAcross(meshDims));
    if (order === null) return joined;
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
  return alongRows(t, dim, (rows) => {
    const sent =
      order === null
        ? rows
        : cat(sizes.map((size, i) => rows.narrow(0, offsets[i] as number, size)));
    return reduceScatterRows(sent, reduceOp, sizes, mesh.groupAcross(meshDims));
  });
}

/** Each rank cuts its piece along the new dim and joins what comes along the old one. */
function exchangeShards(
  { meshDim, fromDim, toDim }: AllToAllStep,
  t: Tensor,
  stage: Stage,
): Tensor {
  const own = stage.coordinate[meshDim] as number;
  const given = chunkSizes(t.shape[toDim] as number, ranksOf(stage, meshDim));
  const taken = groupShards(stage.spec, stage.coordinate, stage.meshDims, fromDim).sizes;
  const flat = t.split(given, toDim).map((chunk) => chunk.reshape([-1]));
  const shapes = taken.map((size) =>
    t.shape.map((n, dim) => (dim === fromDim ? size : dim === toDim ? (given[own] as number) : n)),
  );
  const counts = shapes.map(numelOf);
  const sent = flat.map((chunk) => chunk.numel());
  const received = allToAllRows(cat(flat), sent, counts, stage.mesh.getGroup(meshDim));
  return cat(
    received.split(counts).map((shard, rank) => shard.view(shapes[rank] as number[])),
    fromDim,
  );
}

/** What a rank adds to a reduction whose result is to be `t`. */
function partialValue(reduceOp: string, t: Tensor, place: number): Tensor {
  if (place === 0 || reduceOp === 'avg' || reduceOp === 'min' || reduceOp === 'max') return t;
  return reduceOp === 'sum' ? t.zerosLike() : t.zerosLike().add(1);
}

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
