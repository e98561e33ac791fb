/**
 * Sharding of ops that write by index. If the indexed dim is sharded, a rank writes the elements of
 * other ranks into an extra slice, which it then drops. If the index is sharded, each rank combines
 * its shard of the values, and one of them includes the old elements.
 */
import { bool } from '../../core/dtype.js';
import type { ReduceOpName } from '../../core/placement.js';
import type {
  LocalRun,
  ShardedCall,
  ShardingRule,
  ShardMeta,
  Strategy,
} from '../../core/sharding-rule.js';
import type { Tensor } from '../../core/tensor.js';
import type { Scatter } from '../scatter.js';
import {
  byGathering,
  byIndexing,
  bySelecting,
  checkIndex,
  fromStart,
  type Indexed,
  localIndex,
} from './gather.js';
import {
  anyReduction,
  linearReductions,
  otherDims,
  type PlacementShorthand,
  partialStrategies,
  strategy,
} from './strategies.js';

/**
 * A copy of `x`, the first input, in which `write` writes at indices of its `dims`. Indices outside
 * the shard write nothing.
 */
function writeLocal(
  x: Tensor,
  { inputs: [shard] }: ShardedCall,
  dims: readonly number[],
  indices: readonly Tensor[],
  write: (target: Tensor, ...indices: Tensor[]) => void,
): Tensor {
  const wide = x.newZeros(x.sizes.map((n, d) => (dims.includes(d) ? n + 1 : n)));
  const own = dims.reduce((t, d) => t.narrow(d, 0, x.sizes[d] as number), wide);
  own.copy_(x);
  const local = indices.map((index, i) => {
    const { at, elsewhere } = localIndex(index, shard as ShardMeta, dims[i] as number);
    return at.maskedFill(elsewhere, x.sizes[dims[i] as number] as number);
  });
  write(wide, ...local);
  return own.contiguous();
}

/**
 * Whether a rank has the first of the positions along `dims` of input `input`. An empty shard
 * begins at their end.
 */
function hasFirst({ inputs }: ShardedCall, input: number, dims: readonly number[]): boolean {
  return dims.every((d) => inputs[input]?.offsets[d] === 0);
}

/** The tensor, the index and the values. */
type Writes = readonly [Tensor, Tensor, Tensor];
/** The tensor, the values, and an index for each of its first dims. */
type WritesByIndices = readonly [Tensor, Tensor, Tensor, ...Tensor[]];

interface IndexAdd {
  dim: number;
  alpha: number;
}

const addLocal: LocalRun<IndexAdd, Writes> = ([x, index, source], { dim, alpha }, call) => {
  checkIndex(index, call.inputs[0] as ShardMeta, dim, bySelecting);
  return [
    writeLocal(x, call, [dim], [index], (target, at) =>
      target.indexAdd_(dim, at, source, { alpha }),
    ),
  ];
};

const addOnce: LocalRun<IndexAdd, Writes> = ([x, index, source], { dim, alpha }, call) => {
  const start = hasFirst(call, 2, [dim]) ? x : x.zerosLike();
  return [start.indexAdd(dim, index, source, { alpha })];
};

/** Inputs: the tensor, a vector of indices, and a slice for each. @internal */
export const indexAddRule: ShardingRule<IndexAdd, Writes> = {
  strategies: ([x, index], { dim }) => {
    const { sizes: shape, dtype } = x;
    const sharded = otherDims(shape.length, [dim]).map((d) =>
      strategy<IndexAdd>([d, null, d], [d]),
    );
    if (shape.length > 0) sharded.push(strategy([dim, null, null], [dim], addLocal));
    if (shape.length > 0 && dtype !== bool && index.numel() > 0)
      sharded.push(strategy([null, 0, dim], ['sum'], addOnce));
    return [
      ...sharded,
      ...partialStrategies<IndexAdd>(3, [0, 2], 1, linearReductions(dtype, dtype)),
    ];
  },
};

const scatterLocal: LocalRun<Scatter, Writes> = ([x, index, source], { dim, reduce }, call) => {
  checkIndex(index, call.inputs[0] as ShardMeta, dim, byGathering);
  return [
    writeLocal(x, call, [dim], [index], (target, at) =>
      target.scatter_(dim, at, source, { reduce }),
    ),
  ];
};

const scatterOnce: LocalRun<Scatter, Writes> = ([x, index, source], { dim, reduce }, call) => {
  const start = hasFirst(call, 2, [dim]) ? x : x.newFull(x.sizes, reduce === 'multiply' ? 1 : 0);
  return [start.scatter(dim, index, source, { reduce })];
};

/**
 * How the results of the ranks combine. `set` does not: which of two values for one element wins is
 * not defined.
 */
const combined: Record<Scatter['reduce'], ReduceOpName | null> = {
  set: null,
  add: 'sum',
  multiply: 'product',
  amax: 'max',
  amin: 'min',
};

/** Inputs: the tensor, an index with as many dims, and values of its shape. @internal */
export const scatterRule: ShardingRule<Scatter, Writes> = {
  strategies: ([x, index], { dim, reduce }) => {
    const [{ sizes: shape, dtype }, at] = [x, index];
    const sharded = otherDims(shape.length, [dim])
      .filter((d) => shape[d] === at.sizes[d])
      .map((d) => strategy<Scatter>([d, d, d], [d]));
    if (shape.length > 0) sharded.push(strategy([dim, null, null], [dim], scatterLocal));
    const reduction = combined[reduce];
    const canCombine = shape.length > 0 && reduction !== null && dtype !== bool && at.numel() > 0;
    // An extreme may include the old elements on every rank.
    if (canCombine)
      sharded.push(
        strategy(
          [null, dim, dim],
          [reduction],
          reduction === 'max' || reduction === 'min' ? undefined : scatterOnce,
        ),
      );
    const reductions =
      reduction === null
        ? anyReduction
        : reduction === 'sum'
          ? linearReductions(dtype, dtype)
          : [reduction];
    return [...sharded, ...partialStrategies<Scatter>(3, [0, 2], 1, reductions)];
  },
};

const put = (
  target: Tensor,
  values: Tensor,
  indices: readonly Tensor[],
  accumulate: number,
): Tensor => target.indexPut(indices, values, { accumulate: accumulate === 1 });

const putLocal: LocalRun<Indexed, WritesByIndices> = (
  [x, values, ...indices],
  { accumulate },
  call,
) => {
  for (const [dim, index] of indices.entries())
    checkIndex(index, call.inputs[0] as ShardMeta, dim, byIndexing);
  const positive = indices.map((index, dim) => fromStart(index, call.inputs[0] as ShardMeta, dim));
  const write = (target: Tensor, ...at: Tensor[]): void =>
    void target.indexPut_(at, values, { accumulate: accumulate === 1 });
  return [writeLocal(x, call, [...indices.keys()], positive, write)];
};

const putOnce: LocalRun<Indexed, WritesByIndices> = (
  [x, values, ...indices],
  { accumulate },
  call,
) => {
  const positions = [...indices[0].sizes.keys()];
  return [put(hasFirst(call, 1, positions) ? x : x.zerosLike(), values, indices, accumulate)];
};

/**
 * Inputs: the tensor with the indexed dims first, values, and indices of one shape, with which the
 * values begin. @internal
 */
export const indexPutRule: ShardingRule<Indexed, WritesByIndices> = {
  strategies: ([{ sizes: shape, dtype }, , positions], { numIndices, accumulate }) => {
    const indices = Array<PlacementShorthand>(numIndices).fill(null);
    const at = positions.sizes.length;
    const sharded: Strategy<Indexed>[] = otherDims(shape.length, [...indices.keys()]).map((d) =>
      strategy([d, d - numIndices + at, ...indices], [d]),
    );
    for (const d of indices.keys()) sharded.push(strategy([d, null, ...indices], [d], putLocal));
    if (accumulate === 1 && dtype !== bool && positions.numel() > 0)
      for (const d of positions.sizes.keys())
        sharded.push(strategy([null, d, ...indices.map(() => d)], ['sum'], putOnce));
    const reductions = accumulate === 1 ? linearReductions(dtype, dtype) : anyReduction;
    return [...sharded, ...partialStrategies<Indexed>(2 + numIndices, [0, 1], 1, reductions)];
  },
};
