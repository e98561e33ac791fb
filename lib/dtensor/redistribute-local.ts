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
import { type PlanOptions, planRedistribute } from './redistribute-plan.js';
import type { AllGatherStep, AllToAllStep, ReduceScatterStep, Step } from './redistribute-steps.js';
import { along, because } from './redistribution.js';
import { type DTensorSpec, formatPlacements } from './spec.js';

/** Where a step starts. */
interface Stage {
  readonly mesh: DeviceMesh;
  readonly coordinate: readonly number[];
  readonly spec: DTensorSpec;
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
  return onPurpose(inWords(steps, from, to), () => {
    let t = local;
    let spec = from;
    for (const step of steps) {
      t = along(meshDimName(mesh, step.meshDim), () => carryOut(step, t, { mesh, coordinate, spec }));
      spec = step.after;
    }
    return t;
  });
}

const texts = new WeakMap<readonly Step[], string>();

/** What all ranks must have in common: written once for each plan. */
function inWords(steps: readonly Step[], from: DTensorSpec, to: DTensorSpec): string {
  let text = texts.get(steps);
  if (text === undefined) {
    const advice = 'Every rank of a mesh has to hold a tensor in the same placements and redistribute it to the same ones.';
    text = `to redistribute ${from.tensorInWords()} from ${from.placementsInWords()} to ${to.placementsInWords()} on ${from.meshInWords()}\n${advice}`;
    texts.set(steps, text);
  }
  return text;
}

/** What this rank holds of an input, as an op needs it. */
export function moveInput(op: AnyOp, i: number, local: Tensor, from: DTensorSpec, to: DTensorSpec): Tensor {
  return because(
    () => `${op.name}: input ${i} from ${formatPlacements(from.placements)} to ${formatPlacements(to.placements)}`,
    () => redistributeLocal(local, from, to),
  );
}

function carryOut(step: Step, t: Tensor, stage: Stage): Tensor {
  switch (step.kind) {
    case 'allGather':
      return gatherPieces(step, t, stage);
    case 'allReduce':
      return allReduceTensor(t, step.reduceOp, stage.mesh.getGroup(step.meshDim));
    case 'reduceScatter':
      return reduceToPieces(step, t, stage);
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

/** Sizes along `dim` of the pieces of all ranks along a mesh dim. */
function pieceSizes(stage: Stage, meshDim: number, dim: number): number[] {
  return Array.from({ length: ranksOf(stage, meshDim) }, (_, rank) => {
    const coordinate = stage.coordinate.map((at, i) => (i === meshDim ? rank : at));
    return localPiece(stage.spec, coordinate).shape[dim] as number;
  });
}

const chunkSizes = (size: number, ranks: number): number[] => chunksOf(size, ranks).map((chunk) => chunk.size);

/** Collectives cut and join rows: another dim takes their place meanwhile. @internal */
export function alongRows(t: Tensor, dim: number, run: (rows: Tensor) => Tensor): Tensor {
  if (dim === 0) return run(t);
  return run(t.transpose(0, dim).contiguous()).transpose(0, dim).contiguous();
}

function gatherPieces({ meshDim, dim }: AllGatherStep, t: Tensor, stage: Stage): Tensor {
  const sizes = pieceSizes(stage, meshDim, dim);
  return alongRows(t, dim, (rows) => allGatherRows(rows, sizes, stage.mesh.getGroup(meshDim)));
}

function reduceToPieces({ meshDim, dim, reduceOp }: ReduceScatterStep, t: Tensor, stage: Stage): Tensor {
  const sizes = chunkSizes(t.shape[dim] as number, ranksOf(stage, meshDim));
  return alongRows(t, dim, (rows) => reduceScatterRows(rows, reduceOp, sizes, stage.mesh.getGroup(meshDim)));
}

/** Each rank cuts its piece along the new dim and joins what comes along the old one. */
function exchangePieces({ meshDim, fromDim, toDim }: AllToAllStep, t: Tensor, stage: Stage): Tensor {
  const own = stage.coordinate[meshDim] as number;
  const given = chunkSizes(t.shape[toDim] as number, ranksOf(stage, meshDim));
  const taken = pieceSizes(stage, meshDim, fromDim);
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
