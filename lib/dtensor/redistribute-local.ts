/** Carries out plans: what this rank has becomes what it shall have. */
import { onPurpose } from '../core/collective.js';
import type { AnyOp } from '../core/op.js';
import { numelOf } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import type { DeviceMesh } from '../mesh/device-mesh.js';
import { meshDimName } from '../mesh/mesh-layout.js';
import { allGatherRows, allReduceTensor, allToAllRows, reduceScatterRows } from '../ops/collectives.js';
import { cat } from '../ops/join.js';
import { chunkOf, chunksOf, localPiece } from './geometry.js';
import { type MergedStep, mergeSteps } from './redistribute-merge.js';
import { type PlanOptions, planRedistribute } from './redistribute-plan.js';
import type { AllGatherStep, AllToAllStep, ReduceScatterStep, Step } from './redistribute-steps.js';
import { along, because } from './redistribution.js';
import { type DTensorSpec, formatPlacements } from './spec.js';

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
export function redistributeLocal(local: Tensor, from: DTensorSpec, to: DTensorSpec, options?: PlanOptions): Tensor {
  const steps = planRedistribute(from, to, options);
  const mesh = from.mesh as DeviceMesh;
  const coordinate = mesh.getCoordinate();
  if (coordinate === null) return local;
  if (steps.length === 0) return local;
  const { text, merged } = carriedOut(steps, from, to);
  return onPurpose(text, () => {
    let t = local;
    let spec = from;
    for (const { step, meshDims, names, after } of merged) {
      t = along(names, () => carryOut(step, t, { mesh, coordinate, spec, meshDims }, after));
      spec = after;
    }
    return t;
  });
}

/** A plan as it is carried out. */
interface CarriedOut {
  /** What all ranks must have in common. */
  readonly text: string;
  readonly merged: readonly (MergedStep & { readonly names: string })[];
}

const known = new WeakMap<readonly Step[], CarriedOut>();

function carriedOut(steps: readonly Step[], from: DTensorSpec, to: DTensorSpec): CarriedOut {
  let found = known.get(steps);
  if (found === undefined) {
    const advice = 'Every rank of a mesh has to hold a tensor in the same placements and redistribute it to the same ones.';
    const text = `to redistribute ${from.tensorInWords()} from ${from.placementsInWords()} to ${to.placementsInWords()}\n${advice}`;
    const merged = mergeSteps(steps).map((each) => ({ ...each, names: each.meshDims.map((meshDim) => meshDimName(from.mesh, meshDim)).join('_') }));
    known.set(steps, (found = { text, merged }));
  }
  return found;
}

/** What this rank holds of an input, as an op needs it. */
export function moveInput(op: AnyOp, i: number, local: Tensor, from: DTensorSpec, to: DTensorSpec): Tensor {
  return because(
    () => `${op.name}: input ${i} from ${formatPlacements(from.placements)} to ${formatPlacements(to.placements)}`,
    () => redistributeLocal(local, from, to),
  );
}

function carryOut(step: Step, t: Tensor, stage: Stage, after: DTensorSpec): Tensor {
  switch (step.kind) {
    case 'allGather':
      return gatherPieces(step, t, stage);
    case 'allReduce':
      return allReduceTensor(t, step.reduceOp, stage.mesh.groupAcross(stage.meshDims));
    case 'reduceScatter':
      return reduceToPieces(step, t, stage, after);
    case 'allToAll':
      return exchangePieces(step, t, stage);
    case 'chunk': {
      const piece = ownChunk(t, step.dim, step.meshDim, stage);
      return t.narrow(step.dim, piece.offset, piece.size).clone();
    }
    case 'partialFromReplicate':
      return term(step.reduceOp, t, stage.coordinate[step.meshDim] as number);
    case 'relabel':
      return t;
  }
}

const ranksOf = ({ mesh }: Stage, meshDim: number): number => mesh.shape[meshDim] as number;

function ownChunk(t: Tensor, dim: number, meshDim: number, stage: Stage): { size: number; offset: number } {
  return chunkOf(t.shape[dim] as number, ranksOf(stage, meshDim), stage.coordinate[meshDim] as number);
}

/** Where a rank's piece lies along one dim. */
interface Extent {
  readonly size: number;
  readonly offset: number;
}

/** The pieces along `dim` of all ranks along the stage's mesh dims, in the order of their group. */
function piecesOf({ mesh, coordinate, meshDims }: Stage, spec: DTensorSpec, dim: number): Extent[] {
  let places: number[][] = [[...coordinate]];
  for (const meshDim of meshDims.toSorted((a, b) => a - b))
    places = places.flatMap((place) => Array.from({ length: mesh.shape[meshDim] as number }, (_, rank) => place.with(meshDim, rank)));
  return places.map((place) => {
    const { shape, offsets } = localPiece(spec, place);
    return { size: shape[dim] as number, offset: offsets[dim] as number };
  });
}

const sizesOf = (pieces: readonly Extent[]): number[] => pieces.map(({ size }) => size);

/** Which piece comes first in the tensor, which next; null where ranks hold them in the order of their group: mesh dims may cut in another one. */
function orderOf(pieces: readonly Extent[]): number[] | null {
  const order = [...pieces.keys()].sort((a, b) => (pieces[a] as Extent).offset - (pieces[b] as Extent).offset || a - b);
  return order.every((piece, i) => piece === i) ? null : order;
}

const chunkSizes = (size: number, ranks: number): number[] => chunksOf(size, ranks).map((chunk) => chunk.size);

/** Collectives cut and join rows: another dim takes their place meanwhile. @internal */
export function alongRows(t: Tensor, dim: number, run: (rows: Tensor) => Tensor): Tensor {
  if (dim === 0) return run(t);
  return run(t.transpose(0, dim).contiguous()).transpose(0, dim).contiguous();
}

function gatherPieces({ dim }: AllGatherStep, t: Tensor, stage: Stage): Tensor {
  const pieces = piecesOf(stage, stage.spec, dim);
  const [sizes, order] = [sizesOf(pieces), orderOf(pieces)];
  return alongRows(t, dim, (rows) => {
    const joined = allGatherRows(rows, sizes, stage.mesh.groupAcross(stage.meshDims));
    if (order === null) return joined;
    const parts = joined.split(sizes);
    return cat(order.map((piece) => parts[piece] as Tensor));
  });
}

function reduceToPieces({ dim, reduceOp }: ReduceScatterStep, t: Tensor, stage: Stage, after: DTensorSpec): Tensor {
  const pieces = piecesOf(stage, after, dim);
  const [sizes, inOrder] = [sizesOf(pieces), orderOf(pieces) === null];
  const first = Math.min(...pieces.map(({ offset }) => offset));
  return alongRows(t, dim, (rows) => {
    const sent = inOrder ? rows : cat(pieces.map(({ size, offset }) => rows.narrow(0, offset - first, size)));
    return reduceScatterRows(sent, reduceOp, sizes, stage.mesh.groupAcross(stage.meshDims));
  });
}

/** Each rank cuts its piece along the new dim and joins what comes along the old one. */
function exchangePieces({ meshDim, fromDim, toDim }: AllToAllStep, t: Tensor, stage: Stage): Tensor {
  const own = stage.coordinate[meshDim] as number;
  const given = chunkSizes(t.shape[toDim] as number, ranksOf(stage, meshDim));
  const taken = sizesOf(piecesOf(stage, stage.spec, fromDim));
  const flat = t.split(given, toDim).map((piece) => piece.reshape([-1]));
  const shapes = taken.map((size) => t.shape.map((n, dim) => (dim === fromDim ? size : dim === toDim ? (given[own] as number) : n)));
  const counts = shapes.map(numelOf);
  const sent = flat.map((piece) => piece.numel());
  const received = allToAllRows(cat(flat), sent, counts, stage.mesh.getGroup(meshDim));
  return cat(
    received.split(counts).map((piece, rank) => piece.view(shapes[rank] as number[])),
    fromDim,
  );
}

/** What a rank adds to a reduction whose result is to be `t`. */
function term(reduceOp: string, t: Tensor, place: number): Tensor {
  if (place === 0 || reduceOp === 'avg' || reduceOp === 'min' || reduceOp === 'max') return t;
  return reduceOp === 'sum' ? t.zerosLike() : t.zerosLike().add(1);
}
