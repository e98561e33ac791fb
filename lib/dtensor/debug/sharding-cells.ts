/**
 * Which ranks of a mesh hold which part of a tensor, in words: what pictures of distributed tensors
 * show.
 */
import { meshDimName } from '../../distributed/device-mesh/layout.js';
import { chunksOf } from '../spec/shard-geometry.js';
import type { DTensorSpec } from '../spec/spec.js';

/** Coordinates along some mesh dims, by their numbers. */
type Coordinates = Readonly<Record<number, number>>;

/** Indices of a tensor dim that some ranks have. */
export interface DimShard {
  readonly from: number;
  readonly size: number;
  /** Where those are along the mesh dims that cut the tensor dim. */
  readonly place: Coordinates;
}

/** As many ranks of a part are named one by one; of more, the ranges of their coordinates. */
const MOST_NAMED = 4;

/** The pieces of a tensor dim, the empty ones too. No dim: a single one. */
export function shardsAlong({ shape, order, mesh }: DTensorSpec, dim: number | null): DimShard[] {
  if (dim === null) return [{ from: 0, size: 1, place: {} }];
  let shards: DimShard[] = [{ from: 0, size: shape[dim] as number, place: {} }];
  for (const meshDim of order[dim] as readonly number[]) {
    shards = shards.flatMap(({ from, size, place }) =>
      chunksOf(size, mesh.shape[meshDim] as number).map((chunk, i) => ({
        from: from + chunk.offset,
        size: chunk.size,
        place: { ...place, [meshDim]: i },
      })),
    );
  }
  return shards;
}

/**
 * Who holds the part at `place`: copies as `a | b`, terms of a reduction as `a + b`, or `max(a,
 * b)`.
 *
 * @example `dp=0, tp=0 | dp=0, tp=1`, or of many `dp=0, tp=0…63 (64 copies)`
 */
export function holders(spec: DTensorSpec, place: Coordinates): string {
  const free = [...spec.mesh.shape.keys()].filter((meshDim) => !(meshDim in place));
  const [partialDims, copies] = [
    free.filter((meshDim) => spec.placements[meshDim]?.isPartial()),
    free.filter((meshDim) => !spec.placements[meshDim]?.isPartial()),
  ];
  const [numPartial, numCopies] = [ranksAlong(spec, partialDims), ranksAlong(spec, copies)];
  if (numPartial * numCopies > MOST_NAMED) {
    const counted = [
      numPartial > 1 ? [`${numPartial} partial values`] : [],
      numCopies > 1 ? [`${numCopies} copies`] : [],
    ].flat();
    return `${label(spec, place)} (${counted.join(' of ')})`;
  }
  const addends = placesAlong(spec, partialDims).map((partialAt) => {
    const names = placesAlong(spec, copies).map((copy) =>
      label(spec, { ...place, ...partialAt, ...copy }),
    );
    return numPartial > 1 && numCopies > 1 ? `(${names.join(' | ')})` : names.join(' | ');
  });
  const op = reductionOf(spec);
  return numPartial === 1 || op === 'sum' ? addends.join(' + ') : `${op}(${addends.join(', ')})`;
}

/** `Partial(sum)`, for the line that explains terms; null where there are none. */
export function reductionOf({ placements }: DTensorSpec): string | null {
  const ops = [
    ...new Set(
      placements.flatMap((placement) => (placement.isPartial() ? [placement.reduceOp] : [])),
    ),
  ];
  return ops.length === 0 ? null : ops.join('/');
}

/**
 * The ranks that have nothing, and how many: of pieces next to one another the first and the last;
 * null if there are none.
 */
export function ranksWithoutData(
  spec: DTensorSpec,
  along: readonly (readonly DimShard[])[],
): string | null {
  const full = along.map((shards) => shards.filter(({ size }) => size > 0).length);
  const all = spec.mesh.shape.reduce((a, b) => a * b, 1);
  const shares = along.reduce((product, shards) => product * shards.length, 1);
  const count = all - (all / shares) * full.reduce((a, b) => a * b, 1);
  if (count === 0) return null;
  if (count === all) return `all ${all} ranks`;
  const names = along.flatMap((shards) => {
    const empty = shards
      .filter(({ size }) => size === 0)
      .map(({ place }) => partialLabel(spec, place));
    return empty.length > MOST_NAMED ? [`${empty[0]} … ${empty.at(-1)}`] : empty;
  });
  return `${names.join('; ')} (${count} of ${all} ranks)`;
}

function ranksAlong({ mesh }: DTensorSpec, meshDims: readonly number[]): number {
  return meshDims.reduce((product, meshDim) => product * (mesh.shape[meshDim] as number), 1);
}

function placesAlong({ mesh }: DTensorSpec, meshDims: readonly number[]): Coordinates[] {
  return meshDims.reduce<Coordinates[]>(
    (places, meshDim) =>
      places.flatMap((place) =>
        Array.from({ length: mesh.shape[meshDim] as number }, (_, i) => ({
          ...place,
          [meshDim]: i,
        })),
      ),
    [{}],
  );
}

/**
 * `dp=0, tp=1`, or `mesh[0, 1]` where mesh dims have no names; mesh dims that are not in `place` as
 * ranges.
 */
function label({ mesh }: DTensorSpec, place: Coordinates): string {
  const parts = mesh.shape.map((ranks, meshDim) =>
    String(place[meshDim] ?? (ranks === 1 ? 0 : `0…${ranks - 1}`)),
  );
  if (mesh.meshDimNames === null) return `mesh[${parts.join(', ')}]`;
  return parts.map((part, meshDim) => `${meshDimName(mesh, meshDim)}=${part}`).join(', ');
}

/** Only the mesh dims of `place`: of whatever others. */
function partialLabel(spec: DTensorSpec, place: Coordinates): string {
  const { mesh } = spec;
  if (mesh.meshDimNames === null) return label(spec, place);
  return Object.entries(place)
    .map(([meshDim, at]) => `${meshDimName(mesh, Number(meshDim))}=${at}`)
    .join(', ');
}
