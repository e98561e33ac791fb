/**
 * Sharding of ops that read by index. If the indexed dim is sharded, a rank reads 0 for the
 * elements of other ranks, and the results add up. So an embedding table may be sharded by rows.
 */
import { bool, type DType } from '../../core/dtype.js';
import type { ReduceOpName } from '../../core/placement.js';
import type { LocalRun, ShardingRule, ShardMeta } from '../../core/sharding-rule.js';
import type { Tensor } from '../../core/tensor.js';
import { anyReduction, otherDims, partialStrategies, strategy } from './strategies.js';

interface OneDim {
  dim: number;
}

/** The tensor that is read, and the index. */
type Reads = readonly [Tensor, Tensor];
/** The tensor that is read, and an index for each of its first dims. */
type ReadsByIndices = readonly [Tensor, Tensor, ...Tensor[]];

/** The reduction of values of which one is the element and the others are 0. */
function oneOf(dtype: DType): ReduceOpName {
  return dtype === bool ? 'max' : 'sum';
}

/** A kernel that reads a vector by an index. @internal */
export type ReadOne = (t: Tensor, index: Tensor) => Tensor;
export const bySelecting: ReadOne = (t, index) => t.indexSelect(0, index);
export const byGathering: ReadOne = (t, index) => t.gather(0, index);
/** Negative indices count from the end. */
export const byIndexing: ReadOne = (t, index) => t.index([index]);

/**
 * Fails on every rank if an index is out of range of the whole tensor, even on a rank with an empty
 * shard. `read` indexes an expanded zero of the whole size, so that its error shows the index that
 * the program passed, not the shifted one.
 *
 * @internal
 */
export function checkIndex(index: Tensor, shard: ShardMeta, dim: number, read: ReadOne): void {
  if (index.numel() > 0)
    read(index.newZeros([1]).expand([shard.globalShape[dim] as number]), index.reshape([-1]));
}

/** A global index relative to a shard, and whether it is outside of the shard. @internal */
export function localIndex(
  index: Tensor,
  shard: ShardMeta,
  dim: number,
): { at: Tensor; elsewhere: Tensor } {
  const at = index.sub(shard.offsets[dim] as number);
  return { at, elsewhere: at.lt(0).logicalOr(at.ge(shard.shape[dim] as number)) };
}

/** Replaces negative indices, which count from the end of the whole dim. @internal */
export function fromStart(index: Tensor, shard: ShardMeta, dim: number): Tensor {
  return index.add(
    index
      .lt(0)
      .to(index.dtype)
      .mul(shard.globalShape[dim] as number),
  );
}

/** The local result, with 0 where another rank has the element. */
const readSelected: LocalRun<OneDim, Reads> = (
  [input, index],
  { dim },
  { inputs: [shard], outputs: [result] },
) => {
  checkIndex(index, shard as ShardMeta, dim, bySelecting);
  if (input.sizes[dim] === 0) return [input.newZeros(result?.shape ?? [])];
  const { at, elsewhere } = localIndex(index, shard as ShardMeta, dim);
  const rows = input.sizes.map((_, d) => (d === dim ? -1 : 1));
  return [
    input.indexSelect(dim, at.maskedFill(elsewhere, 0)).maskedFill(elsewhere.reshape(rows), 0),
  ];
};

/** Inputs: the table, and a vector of indices. @internal */
export const indexSelectRule: ShardingRule<OneDim, Reads> = {
  strategies: ([x], { dim }) => {
    const { sizes: shape, dtype } = x;
    const along =
      shape.length === 0
        ? []
        : [strategy([null, 0], [dim]), strategy([dim, null], [oneOf(dtype)], readSelected)];
    return [
      ...otherDims(shape.length, [dim]).map((d) => strategy([d, null], [d])),
      ...along,
      ...partialStrategies<OneDim>(2, [0], 1, anyReduction),
    ];
  },
};

const readGathered: LocalRun<OneDim, Reads> = (
  [input, index],
  { dim },
  { inputs: [shard], outputs: [result] },
) => {
  checkIndex(index, shard as ShardMeta, dim, byGathering);
  if (input.sizes[dim] === 0) return [input.newZeros(result?.shape ?? [])];
  const { at, elsewhere } = localIndex(index, shard as ShardMeta, dim);
  return [input.gather(dim, at.maskedFill(elsewhere, 0)).maskedFill(elsewhere, 0)];
};

/**
 * Inputs: the tensor and an index with as many dims. Along the other dims, both are sharded where
 * their sizes are equal. @internal
 */
export const gatherRule: ShardingRule<OneDim, Reads> = {
  strategies: ([x, index], { dim }) => {
    const { sizes: shape, dtype } = x;
    const equal = otherDims(shape.length, [dim]).filter((d) => shape[d] === index.sizes[d]);
    const along =
      shape.length === 0
        ? []
        : [strategy([null, dim], [dim]), strategy([dim, null], [oneOf(dtype)], readGathered)];
    return [
      ...equal.map((d) => strategy([d, d], [d])),
      ...along,
      ...partialStrategies<OneDim>(2, [0], 1, anyReduction),
    ];
  },
};

/** Params of ops that read or write by several indices. @internal */
export interface Indexed {
  numIndices: number;
  accumulate: number;
}

const readIndexed: LocalRun<Indexed, ReadsByIndices> = (
  [input, ...indices],
  _params,
  { inputs: [shard], outputs: [result] },
) => {
  const own = shard as ShardMeta;
  for (const [dim, index] of indices.entries()) checkIndex(index, own, dim, byIndexing);
  if (indices.some((_, dim) => input.sizes[dim] === 0))
    return [input.newZeros(result?.shape ?? [])];
  const local = indices.map((index, dim) => localIndex(fromStart(index, own, dim), own, dim));
  const elsewhere = local.map((l) => l.elsewhere).reduce((a, b) => a.logicalOr(b));
  const found = input.index(local.map(({ at }) => at.maskedFill(elsewhere, 0)));
  return [
    found.maskedFill(
      elsewhere.reshape([
        ...elsewhere.sizes,
        ...found.sizes.slice(elsewhere.sizes.length).map(() => 1),
      ]),
      0,
    ),
  ];
};

/**
 * Inputs: the tensor with the indexed dims first, then one index for each of them. The indices have
 * one shape, with which the result begins. @internal
 */
export const indexGetRule: ShardingRule<Indexed, ReadsByIndices> = {
  strategies: ([{ sizes: shape, dtype }, index], { numIndices }) => {
    const positions = index.sizes;
    const indices = Array<null>(numIndices).fill(null);
    return [
      ...otherDims(shape.length, [...indices.keys()]).map((d) =>
        strategy<Indexed>([d, ...indices], [d - numIndices + positions.length]),
      ),
      ...positions.map((_, d) => strategy<Indexed>([null, ...indices.map(() => d)], [d])),
      ...indices.map((_, d) => strategy<Indexed>([d, ...indices], [oneOf(dtype)], readIndexed)),
      ...partialStrategies<Indexed>(1 + numIndices, [0], 1, anyReduction),
    ];
  },
};
