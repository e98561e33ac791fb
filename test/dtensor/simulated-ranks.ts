/**
 * Runs the steps of a plan on small arrays of numbers, for all ranks of a mesh. Written from the
 * definition of the placements, without anything of the library's geometry.
 */
import type { ReduceOpName } from '../../lib/core/placement.js';
import { numelOf, type Shape } from '../../lib/core/shape.js';
import type { Step } from '../../lib/dtensor/redistribute/steps.js';
import { meshCoordinates } from '../../lib/dtensor/spec/shard-geometry.js';
import type { DTensorSpec } from '../../lib/dtensor/spec/spec.js';
import type { SpecPair } from './fake-mesh.js';

export interface Values {
  shape: Shape;
  data: readonly number[];
}

/** What each rank holds, row-major by its position in the mesh. */
export type Ranks = readonly Values[];

export const reductions: Record<ReduceOpName, (terms: readonly number[]) => number> = {
  sum: (terms) => terms.reduce((a, b) => a + b),
  avg: (terms) => terms.reduce((a, b) => a + b) / terms.length,
  product: (terms) => terms.reduce((a, b) => a * b),
  min: (terms) => Math.min(...terms),
  max: (terms) => Math.max(...terms),
};

export function reduceAll(op: ReduceOpName, terms: readonly Values[]): Values {
  const { shape, data } = terms[0] as Values;
  return {
    shape,
    data: data.map((_, i) => reductions[op](terms.map((term) => term.data[i] as number))),
  };
}

/** Elements `from` to `to` along `dim`. */
function slice({ shape, data }: Values, dim: number, from: number, to: number): Values {
  const inner = numelOf(shape.slice(dim + 1));
  const size = shape[dim] as number;
  const kept = data.filter((_, i) => {
    const index = Math.floor(i / inner) % size;
    return index >= from && index < to;
  });
  return { shape: shape.with(dim, to - from), data: kept };
}

function concat(parts: readonly Values[], dim: number): Values {
  const first = parts[0] as Values;
  const outer = numelOf(first.shape.slice(0, dim));
  const data: number[] = [];
  for (let row = 0; row < outer; row++) {
    for (const part of parts) {
      const width = numelOf(part.shape.slice(dim));
      data.push(...part.data.slice(row * width, (row + 1) * width));
    }
  }
  return {
    shape: first.shape.with(
      dim,
      parts.reduce((sum, part) => sum + (part.shape[dim] as number), 0),
    ),
    data,
  };
}

export function chunk(values: Values, dim: number, ranks: number, rank: number): Values {
  const size = values.shape[dim] as number;
  const c = Math.ceil(size / ranks);
  return slice(values, dim, Math.min(size, rank * c), Math.min(size, (rank + 1) * c));
}

/** What a rank holds of the whole tensor. */
export function localOf(spec: DTensorSpec, whole: Values, coordinate: readonly number[]): Values {
  let local = whole;
  spec.order.forEach((cuts, dim) => {
    for (const meshDim of cuts)
      local = chunk(local, dim, spec.mesh.shape[meshDim] as number, coordinate[meshDim] as number);
  });
  return local;
}

/**
 * Row-major positions of all ranks, with the ranks that differ from each only in `meshDim`, in
 * order.
 */
function groups(meshShape: Shape, meshDim: number): { members: number[]; position: number }[] {
  const stride = numelOf(meshShape.slice(meshDim + 1));
  const ranks = meshShape[meshDim] as number;
  return Array.from({ length: numelOf(meshShape) }, (_, rank) => {
    const position = Math.floor(rank / stride) % ranks;
    const start = rank - position * stride;
    return { members: Array.from({ length: ranks }, (_, i) => start + i * stride), position };
  });
}

/** All ranks after a step. */
export function runStep(step: Step, meshShape: Shape, before: Ranks): Ranks {
  const ranks = meshShape[step.meshDim] as number;
  return groups(meshShape, step.meshDim).map(({ members, position }) => {
    const held = members.map((member) => before[member] as Values);
    const own = held[position] as Values;
    switch (step.kind) {
      case 'allGather':
        return concat(held, step.dim);
      case 'allReduce':
        return reduceAll(step.reduceOp, held);
      case 'reduceScatter':
        return chunk(reduceAll(step.reduceOp, held), step.dim, ranks, position);
      case 'allToAll':
        return concat(
          held.map((values) => chunk(values, step.toDim, ranks, position)),
          step.fromDim,
        );
      case 'chunk':
        return chunk(own, step.dim, ranks, position);
      case 'partialFromReplicate':
        return step.reduceOp === 'sum'
          ? { shape: own.shape, data: own.data.map((x) => x / ranks) }
          : own;
      default:
        return own;
    }
  });
}

export type Terms = (coordinate: readonly number[]) => Values;

/**
 * Whole terms by their coordinates along Partial mesh dims: other mesh dims do not change them. The
 * same whoever asks, in any order.
 */
export function termsOf(spec: DTensorSpec): Terms {
  const known = new Map<number, Values>();
  return (coordinate) => {
    const term = spec.placements.reduce(
      (n, placement, meshDim) =>
        n * 8 + (placement.isPartial() ? (coordinate[meshDim] as number) : 0),
      0,
    );
    let values = known.get(term);
    if (values === undefined) {
      let seed = 7 + 1009 * term;
      const data = Array.from(
        { length: numelOf(spec.shape) },
        () => ((seed = (seed * 16807) % 2147483647) % 9) - 4,
      );
      known.set(term, (values = { shape: spec.shape, data }));
    }
    return values;
  };
}

/**
 * What all ranks must hold in the end: terms reduced along mesh dims that are no longer Partial,
 * cut as the target says.
 */
export function expectedRanks({ from, to }: SpecPair, terms: Terms): Ranks {
  const reduceFrom = (coordinate: readonly number[], meshDim: number): Values => {
    if (meshDim === from.placements.length) return terms(coordinate);
    const source = from.placements[meshDim];
    if (!source?.isPartial() || to.placements[meshDim]?.isPartial())
      return reduceFrom(coordinate, meshDim + 1);
    const ranks = Array.from({ length: from.mesh.shape[meshDim] as number }, (_, i) => i);
    return reduceAll(
      source.reduceOp,
      ranks.map((rank) => reduceFrom(coordinate.with(meshDim, rank), meshDim + 1)),
    );
  };
  return meshCoordinates(from.mesh).map((coordinate) =>
    localOf(to, reduceFrom(coordinate, 0), coordinate),
  );
}
