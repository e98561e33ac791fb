/**
 * Sharding of what is made from nothing, or by position: a rank makes its piece as it would lie in
 * the whole.
 */
import type { DType } from '../../core/dtype.js';
import { contiguousStrides, type Shape } from '../../core/shape.js';
import type { ShardedCall, ShardingRule, ShardMeta } from '../../core/sharding-rule.js';
import type { Tensor } from '../../core/tensor.js';
import { sameDimStrategies } from './along-dim.js';
import { anyReduction, linearReductions, partialStrategies, strategy } from './strategies.js';

const shardedResult = <P>(shape: Shape) => shape.map((_, dim) => strategy<P>([], [dim]));
const resultOf = ({ outputs: [result] }: ShardedCall): ShardMeta => result as ShardMeta;

/**
 * Strides without gaps for other sizes, with the dims in memory in the order that `strides` gives.
 */
function denseStrides(shape: Shape, strides: Shape): Shape {
  const order = [...shape.keys()].sort(
    (a, b) => (strides[b] as number) - (strides[a] as number) || a - b,
  );
  const packed = contiguousStrides(order.map((dim) => shape[dim] as number));
  return shape.map((_, dim) => packed[order.indexOf(dim)] as number);
}

/** One value everywhere, or none. @internal */
export function factoryRule<P extends { shape: Shape; strides?: Shape | null }>(): ShardingRule<P> {
  return {
    strategies: (_inputs, { shape }) => shardedResult(shape),
    localParams: (params, call) => {
      const { shape } = resultOf(call);
      return params.strides
        ? { ...params, shape, strides: denseStrides(shape, params.strides) }
        : { ...params, shape };
    },
  };
}

interface Range {
  size: number;
  start: number;
  /** Of arange the step, of linspace the end. */
  step: number;
  dtype: DType;
}

/** Rounded to integers, another way to compute a number could give another one. */
const isExact = ({ dtype, start, step }: Range): boolean =>
  dtype.isFloatingPoint || (Number.isInteger(start) && Number.isInteger(step));

/** @internal */
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

/** @internal */
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

/** Where the elements of a piece are among those of the whole, in row-major order. @internal */
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

/** Random numbers: each goes by the index of its element in the whole. @internal */
export function randomRule<P extends { shape: Shape; index?: ElementIndex }>(): ShardingRule<P> {
  return {
    strategies: (_inputs, { shape }) => shardedResult(shape),
    localParams: (params, call) => ({
      ...params,
      shape: resultOf(call).shape,
      index: elementIndex(resultOf(call)),
    }),
  };
}

/**
 * Copies draw the same numbers, so that the same elements of all terms are dropped. The mask is no
 * term. @internal
 */
export function dropoutRule<P extends { index?: ElementIndex }>(): ShardingRule<P> {
  return {
    strategies: ([x]) => {
      const { shape, dtype } = x as Tensor;
      return [
        ...sameDimStrategies<P>(shape.length, [], 1, 2),
        ...linearReductions(dtype, dtype).map((r) => strategy<P>([r], [r, null])),
      ];
    },
    localParams: (params, call) => ({ ...params, index: elementIndex(resultOf(call)) }),
  };
}

/** Triangles of matrices: where a piece begins moves the diagonal. @internal */
export function triangleRule<P extends { diagonal: number }>(): ShardingRule<P> {
  return {
    strategies: ([x]) => [
      ...sameDimStrategies<P>((x as Tensor).shape.length, [], 1, 1),
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
