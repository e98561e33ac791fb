/** Sharding of matrix products: along batches, rows, columns and the contracted dim. */
import { dispatch } from '../../core/dispatch.js';
import { bool, type DType } from '../../core/dtype.js';
import type { Op } from '../../core/op.js';
import { broadcastShapes } from '../../core/shape.js';
import type { LocalRun, ShardingRule, Strategy } from '../../core/sharding-rule.js';
import { type Tensor, wrapNumber } from '../../core/tensor.js';
import { broadcastPlacement, isNumber, linearReductions, strategy } from './strategies.js';

/** The factors and the addend. */
type Operands = readonly [Tensor, Tensor, Tensor];

/**
 * The rule of a product of two factors plus an addend, which may be absent. `op` is a function,
 * because the op is not defined yet when its rule is created. `partialFactors`: whether a factor
 * may be Partial, which rounds each part. @internal
 */
export function matmulRule<P extends object>(
  op: () => Op<P>,
  { partialFactors = true } = {},
): ShardingRule<P, Operands> {
  const addOnce: LocalRun<P, Operands> = ([a, b, c], params, call) => {
    const first = call.inputs[0]?.offsets.at(-1) === 0;
    return first
      ? dispatch(op(), [a, b, c], params)
      : dispatch(op(), withoutAddend(a, b), { ...params, beta: 0 });
  };
  // A run of its own, so that it does not combine with `addOnce`, which would drop partial values
  // of the addend.
  const addPartial: LocalRun<P> = (inputs, params) => dispatch(op(), inputs, params);

  return {
    strategies: ([x, y, addend]) => {
      return [
        ...freeDimStrategies<P>(x, y, addend),
        ...contractedDimStrategies(x, y, addend, addOnce, addPartial),
        ...(partialFactors ? linearStrategies<P>(x.dtype, addend) : []),
      ];
    },
  };
}

function withoutAddend(a: Tensor, b: Tensor): Tensor[] {
  return [a, b, wrapNumber(0, a.dtype, a.device)];
}

/** Sharded along a dim of the result: a batch dim, the rows of `a` or the columns of `b`. */
function freeDimStrategies<P>(a: Tensor, b: Tensor, c: Tensor): Strategy<P>[] {
  const batch = broadcastShapes(a.sizes.slice(0, -2), b.sizes.slice(0, -2), 'matmul');
  const shape = [...batch, a.sizes.at(-2) as number, b.sizes.at(-1) as number];
  const [rows, columns] = [shape.length - 2, shape.length - 1];
  return shape.map((_, dim) => {
    const ofA = dim === columns ? null : broadcastPlacement(a, dim, shape);
    const ofB = dim === rows ? null : broadcastPlacement(b, dim, shape);
    return strategy([ofA, ofB, broadcastPlacement(c, dim, shape)], [dim]);
  });
}

/**
 * Sharded along the contracted dim: each rank has a partial product, and one of them adds the
 * addend.
 */
function contractedDimStrategies<P>(
  a: Tensor,
  b: Tensor,
  c: Tensor,
  addOnce: LocalRun<P, Operands>,
  addPartial: LocalRun<P>,
): Strategy<P>[] {
  // without elements, every shard begins at 0
  if (a.sizes.at(-1) === 0 || a.dtype === bool) return [];
  const [ofA, ofB] = [a.sizes.length - 1, b.sizes.length - 2];
  if (isNumber(c)) return [strategy([ofA, ofB, null], ['sum'])];
  return [
    strategy([ofA, ofB, null], ['sum'], addOnce),
    strategy([ofA, ofB, 'sum'], ['sum'], addPartial),
  ];
}

/**
 * The rule of a product of rows, which are contracted along all leading dims: those of a batch as
 * those of a sequence.
 *
 * @param product - runs it on shards of any strides
 * @internal
 */
export function rowsProductRule<P>(
  product: (a: Tensor, b: Tensor) => Tensor,
): ShardingRule<P, readonly [Tensor, Tensor]> {
  const run: LocalRun<P, readonly [Tensor, Tensor]> = ([a, b]) => [product(a, b)];
  return {
    strategies: ([a, b]) => {
      const columns = a.sizes.length - 1;
      return [
        ...a.sizes.slice(0, -1).map((_, dim) => strategy<P>([dim, dim], ['sum'], run)),
        strategy<P>([columns, null], [0], run),
        strategy<P>([null, columns], [1], run),
        ...linearReductions(a.dtype, b.dtype).flatMap((r) => [
          strategy<P>([r, null], [r], run),
          strategy<P>([null, r], [r], run),
        ]),
        strategy<P>([null, null], [null], run),
      ];
    },
  };
}

/** Partial in one factor; the addend must then be Partial too. */
function linearStrategies<P>(dtype: DType, c: Tensor): Strategy<P>[] {
  return linearReductions(dtype, dtype).flatMap((r) => {
    const ofC = isNumber(c) ? null : r;
    return [strategy<P>([r, null, ofC], [r]), strategy<P>([null, r, ofC], [r])];
  });
}
