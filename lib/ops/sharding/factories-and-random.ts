/**
 * Sharding of factories, random numbers, and ops that depend on positions: a rank computes the
 * elements of its shard as they are in the whole tensor.
 */
import type { DType } from '../../core/dtype.js';
import { contiguousStrides, type Shape } from '../../core/shape.js';
import type { ShardedCall, ShardingRule, ShardMeta } from '../../core/sharding-rule.js';
import type { Tensor } from '../../core/tensor.js';
import { sameDimStrategies } from './along-dim.js';
import { anyReduction, linearReductions, partialStrategies, strategy } from './strategies.js';

const shardedResult = <P>(shape: Shape) => shape.map((_, dim) => strategy<P>([], [dim]));
const resultOf = ({ outputs: [result] }: ShardedCall): ShardMeta => result as ShardMeta;

/** Dense strides for `shape`, with the dims in the memory order of `strides`. */
function denseStrides(shape: Shape, strides: Shape): Shape {
  const order = [...shape.keys()].sort(
    (a, b) => (strides[b] as number) - (strides[a] as number) || a - b,
  );
  const packed = contiguousStrides(order.map((dim) => shape[dim] as number));
  return shape.map((_, dim) => packed[order.indexOf(dim)] as number);
}

interface Layout {
  shape: Shape;
  strides?: Shape | null;
}

/** The params of a factory on a shard. */
function localLayout<P extends Layout>(params: P, call: ShardedCall): P {
  const { shape } = resultOf(call);
  return params.strides
    ? { ...params, shape, strides: denseStrides(shape, params.strides) }
    : { ...params, shape };
}

/** Factories of constant or uninitialized tensors. @internal */
export function factoryRule<P extends Layout>(): ShardingRule<P> {
  return { strategies: (_inputs, { shape }) => shardedResult(shape), localParams: localLayout };
}

interface Range {
  size: number;
  start: number;
  /** The step of arange; the end of linspace. */
  step: number;
  dtype: DType;
}

/** Whether each rank computes the same numbers; rounding to integers could make them differ. */
const isExact = ({ dtype, start, step }: Range): boolean =>
  dtype.isFloatingPoint || (Number.isInteger(start) && Number.isInteger(step));

/** `arange`: a rank begins at the number of its first element. @internal */
export function arangeRule<P extends Range>(): ShardingRule<P> {
  return {
    strategies: (_inputs, params) => (isExact(params) ? shardedResult([params.size]) : []),
    localParams: (params, call) => {
      const { shape, offsets } = resultOf(call);
      return {
        ...params,
        size: shape[0] as number,
        start: params.start + (offsets[0] as number) * params.step,
      };
    },
  };
}

/** `linspace`, of floating types. @internal */
export function linspaceRule<P extends Range>(): ShardingRule<P> {
  return {
    strategies: (_inputs, { dtype, size }) => (dtype.isFloatingPoint ? shardedResult([size]) : []),
    localParams: (params, call) => {
      const { shape, offsets } = resultOf(call);
      const [count, first] = [shape[0] as number, offsets[0] as number];
      const at = (i: number): number =>
        params.start + ((params.step - params.start) / Math.max(1, params.size - 1)) * i;
      return count === params.size
        ? params
        : { ...params, size: count, start: at(first), step: at(first + count - 1) };
    },
  };
}

/** The row-major indices of a shard's elements in the whole tensor. @internal */
export interface ElementIndex {
  start: number;
  strides: Shape;
}

function elementIndex({ offsets, globalShape }: ShardMeta): ElementIndex {
  const strides = contiguousStrides(globalShape);
  return {
    start: offsets.reduce((at, offset, dim) => at + offset * (strides[dim] as number), 0),
    strides,
  };
}

/** Random numbers: each depends on the global index of its element. @internal */
export function randomRule<P extends Layout & { index?: ElementIndex }>(): ShardingRule<P> {
  return {
    strategies: (_inputs, { shape }) => shardedResult(shape),
    localParams: (params, call) => ({
      ...localLayout(params, call),
      index: elementIndex(resultOf(call)),
    }),
  };
}

/**
 * Dropout. Ranks with the same elements draw the same numbers, so the same elements of all partial
 * values are dropped. The mask is replicated. @internal
 */
export function dropoutRule<P extends { index?: ElementIndex }>(): ShardingRule<
  P,
  readonly [Tensor]
> {
  return {
    strategies: ([{ sizes: shape, dtype }]) => {
      return [
        ...sameDimStrategies<P>(shape.length, [], 1, 2),
        ...linearReductions(dtype, dtype).map((r) => strategy<P>([r], [r, null])),
      ];
    },
    localParams: (params, call) => ({ ...params, index: elementIndex(resultOf(call)) }),
  };
}

/** Triangles of matrices: the offsets of a shard shift the diagonal. @internal */
export function triangleRule<P extends { diagonal: number }>(): ShardingRule<P, readonly [Tensor]> {
  return {
    strategies: ([x]) => [
      ...sameDimStrategies<P>(x.sizes.length, [], 1, 1),
      ...partialStrategies<P>(1, [0], 1, anyReduction),
    ],
    localParams: (params, call) => {
      const { offsets } = resultOf(call);
      return {
        ...params,
        diagonal: params.diagonal + (offsets.at(-2) as number) - (offsets.at(-1) as number),
      };
    },
  };
}
