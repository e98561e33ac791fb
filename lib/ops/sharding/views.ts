/** Sharding of views: each dim of the input maps to one of the result. Partial is kept. */
import type { Shape } from '../../core/shape.js';
import type { MeshDimContext, ShardedCall, ShardingRule } from '../../core/sharding-rule.js';
import type { Tensor } from '../../core/tensor.js';
import { anyReduction, otherDims, partialStrategies, strategy } from './strategies.js';

/**
 * For each dim of the input, the dim of the result that is sharded if it is; null if no dim would
 * be. @internal
 */
export type DimMap = readonly (number | null)[];

/** The rule of a view; `localParams` is needed if params contain sizes. @internal */
export function viewRule<P>(
  mapDims: (input: Tensor, params: P, mesh: MeshDimContext) => DimMap,
  localParams?: ShardingRule<P>['localParams'],
): ShardingRule<P, readonly [Tensor]> {
  const strategies: ShardingRule<P, readonly [Tensor]>['strategies'] = ([x], params, mesh) => {
    const sharded = mapDims(x, params, mesh).flatMap((to, dim) =>
      to === null ? [] : [strategy<P>([dim], [to])],
    );
    return [...sharded, ...partialStrategies<P>(1, [0], 1, anyReduction)];
  };
  return localParams === undefined ? { strategies } : { strategies, localParams };
}

/** Dims keep their positions; those in `changed` cannot be sharded. @internal */
export function sameDims(ndim: number, changed: readonly number[] = []): DimMap {
  return Array.from({ length: ndim }, (_, dim) => (changed.includes(dim) ? null : dim));
}

/** Dims move forward where `gone` dims before them are removed. @internal */
export function keptDims(ndim: number, gone: readonly number[]): DimMap {
  const kept = otherDims(ndim, gone);
  return sameDims(ndim, gone).map((dim) => (dim === null ? null : kept.indexOf(dim)));
}

/** A permutation: `order` gives the input dim of each dim of the result. @internal */
export function movedDims(order: readonly number[]): DimMap {
  return order.map((_, dim) => order.indexOf(dim));
}

/** The sizes of the local result. */
const localSize = <P extends { size: Shape }>(
  params: P,
  { outputs: [result] }: ShardedCall,
): P => ({ ...params, size: result?.shape ?? params.size });

/** Dims that split or merge in row-major order may be sharded along the first of them. @internal */
export const viewSizeRule = viewRule<{ size: Shape }>(
  (input, { size }, mesh) => reshapedDims(input.sizes, size, mesh),
  localSize,
);

/**
 * A view of the bytes as another dtype. `lastSize` gives the size of the last dim in it, which may
 * be sharded if its elements keep their size or shards divide evenly. Partial values are no sums of
 * such elements. @internal
 */
export const viewDtypeRule = <P>(
  lastSize: (input: Tensor, params: P) => number,
): ShardingRule<P, readonly [Tensor]> => ({
  strategies: ([x], params, mesh) => {
    const last = x.sizes.length - 1;
    const [size, wanted] = [x.sizes[last] ?? 1, lastSize(x, params)];
    const isEven = mesh.divides(0, last, size) && mesh.divides(0, last, wanted);
    return x.sizes.flatMap((_, dim) =>
      dim < last || size === wanted || isEven ? [strategy<P>([dim], [dim])] : [],
    );
  },
});

/** Expanded dims cannot be sharded. @internal */
export const expandRule = viewRule<{ size: Shape }>(({ sizes: shape }, { size }) => {
  const lead = size.length - shape.length;
  return shape.map((n, dim) => (n === size[dim + lead] ? dim + lead : null));
}, localSize);

/** Squeeze removes dims whose global size is 1, not those of a shard with one element. @internal */
export const squeezeRule = viewRule<{ dims: readonly number[] }>(
  ({ sizes: shape }, { dims }) =>
    keptDims(
      shape.length,
      dims.filter((dim) => shape[dim] === 1),
    ),
  ({ dims }, { inputs: [shard] }) => ({
    dims: dims.filter((dim) => shard?.globalShape[dim] === 1),
  }),
);

interface Slice {
  dim: number;
  start: number;
  length: number;
  step: number;
}

/** The sliced dim may be sharded only if the slice keeps all of it. @internal */
export function slicedDims(shape: Shape, { dim, start, length, step }: Slice): DimMap {
  return sameDims(shape.length, start === 0 && step === 1 && length === shape[dim] ? [] : [dim]);
}

/** @internal */
export const sliceRule = viewRule<Slice>(
  ({ sizes: shape }, params) => slicedDims(shape, params),
  (params, { outputs: [result] }) => ({
    ...params,
    length: result?.shape[params.dim] ?? params.length,
  }),
);

function reshapedDims(from: Shape, to: Shape, mesh: MeshDimContext): DimMap {
  const map = Array<number | null>(from.length).fill(null);
  for (const [ins, outs] of sameElements(from, to)) {
    const [first, shown] = [
      ins.find((d) => from[d] !== 1) ?? ins[0],
      outs.find((d) => to[d] !== 1) ?? outs[0],
    ] as [number, number];
    const [size, wanted] = [from[first] as number, to[shown] as number];
    // A shard along the first dim is one run of elements, and a shard of the other shape if both
    // divide evenly.
    const even = mesh.divides(0, first, size) && mesh.divides(0, first, wanted);
    if (size === wanted || even) map[first] = shown;
  }
  return map;
}

/** Splits the dims of both shapes into the shortest groups with equal numbers of elements. */
function sameElements(from: Shape, to: Shape): [number[], number[]][] {
  const groups: [number[], number[]][] = [];
  for (let i = 0, o = 0; i < from.length && o < to.length; ) {
    const [ins, outs] = [[i], [o]];
    let [left, right] = [from[i++] as number, to[o++] as number];
    while (left !== right) {
      // sizes of 0 need not match
      if (left < right ? i === from.length : o === to.length) return groups;
      if (left < right) {
        left *= from[i] as number;
        ins.push(i++);
      } else {
        right *= to[o] as number;
        outs.push(o++);
      }
    }
    groups.push([ins, outs]);
  }
  return groups;
}
