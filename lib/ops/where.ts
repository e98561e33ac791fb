/**
 * Choice by a mask: where and maskedFill. Shapes broadcast.
 *
 * Every function throws ShapeError if shapes do not broadcast, DeviceError for tensors on two
 * devices, and ArgumentError for an operand that is neither a tensor nor a number where one is
 * allowed.
 */

import { dispatchOne } from '../core/dispatch.js';
import { bool, uint8 } from '../core/dtype.js';
import { DtypeError } from '../core/errors.js';
import type { Op } from '../core/op.js';
import { optionsOf, unexpected } from '../core/options.js';
import { broadcastShapes } from '../core/shape.js';
import { defineFunction, isOptions, type MethodOf, methodOf } from '../core/signature.js';
import { Tensor } from '../core/tensor.js';
import { holdsIntegers, toInteger } from '../core/values.js';
import { definePointwise } from './define-pointwise.js';
import { addMethod, NO_PARAMS } from './method.js';
import { nonzero } from './nonzero.js';
import { operand, requireTensor, type TensorLike } from './operand.js';
import { dispatchInto, type OutOption, outOf } from './out.js';
import { ternarySamples } from './pointwise-ternary.js';

const whereOp: Op<object> = definePointwise('where', 3, {
  out: true,
  doc: 'Elements of the second input where the first is not 0, else of the third.',
  expression: 'x != T(0) ? y : z',
  linear: [[1, 2]],
  classes: 'A',
  condition: true,
  saves: { inputs: [0] },
  vjp: (ctx, g) => {
    const condition = ctx.input(0);
    return [
      null,
      ctx.needs(1) ? where(condition, g, 0) : null,
      ctx.needs(2) ? where(condition, 0, g) : null,
    ];
  },
  samples: ternarySamples(NO_PARAMS, { dtype: bool, low: 0, high: 2 }),
});

/**
 * Elements of `input` where `condition` is not 0, else of `other`; both may be numbers. With the
 * condition alone, the indices of its elements that are not 0, one int64 vector for each dim, and
 * one without dims (which blocks: {@link nonzeroAsync} does not).
 *
 * Shapes: all three broadcast. Dtypes: condition bool (or uint8), of any dtype if it is the only
 * argument; the others promoted. Gradient: input and other; none with `out`, as {@link add}.
 *
 * @throws DtypeError for a condition of another dtype; ShapeError if shapes do not broadcast;
 * DeviceError for two devices; ArgumentError for a value that is neither a tensor nor a number
 * @see PyTorch `torch.where`
 * @example
 * const t = tensor([-1, 2]);
 * where(t.gt(0), t, 0); // [0, 2]
 */
export function where(condition: Tensor): Tensor[];
/** {@link where} with both choices. */
export function where(
  condition: Tensor,
  input: TensorLike,
  other: TensorLike | ({ other: TensorLike } & OutOption),
  options?: OutOption,
): Tensor;
/** The same with options. */
export function where(
  condition: Tensor,
  options: { input: TensorLike; other: TensorLike } & OutOption,
): Tensor;
export function where(
  condition: Tensor,
  input?: TensorLike | WhereOptions,
  other?: TensorLike | WhereOptions,
  options?: OutOption,
): Tensor | Tensor[] {
  requireTensor(condition, 'where', 'condition');
  if (isOptions(input))
    return choose(condition, optionsOf('where', input as WhereOptions, 'input other out'));
  if (isOptions(other))
    return choose(condition, {
      input: input as TensorLike,
      ...optionsOf('where', other as WhereOptions, 'other out'),
    });
  if (input === undefined && other === undefined) return nonzero(condition, { asTuple: true });
  if (condition.dtype !== bool && condition.dtype !== uint8)
    throw new DtypeError(
      `where: expected a bool condition, got ${condition.dtype.name}; compare it, ` +
        'such as with .ne(0)',
      { op: 'where', dtype: condition.dtype.name },
    );
  const { device } = condition;
  const operands = [
    condition,
    operand(input as TensorLike, device, 'where'),
    operand(other as TensorLike, device, 'where'),
  ];
  return options === undefined
    ? dispatchOne(whereOp, operands, NO_PARAMS)
    : dispatchInto(whereOp, operands, NO_PARAMS, outOf('where', options));
}

/** @throws DtypeError if the mask is not bool. */
function checkMask(mask: Tensor, op: string): void {
  requireTensor(mask, op, 'mask');
  if (mask.dtype !== bool)
    throw new DtypeError(
      `${op}: expected a bool mask, got ${mask.dtype.name}; convert it with .bool()`,
      { op, dtype: mask.dtype.name },
    );
}

/**
 * Converts the value of a fill to the dtype of the tensor. @throws ArgumentError for a number out
 * of the range of an integer dtype.
 */
function fillerOf(input: Tensor, value: TensorLike, op: string): Tensor {
  if (value instanceof Tensor) return value.to(input.dtype);
  const isNumber = typeof value === 'number' || typeof value === 'bigint';
  if (isNumber && input.dtype === bool)
    return operand(value !== 0 && value !== 0n, input.device, op);
  return operand(
    isNumber && holdsIntegers(input.dtype) ? toInteger(value, input.dtype, op) : value,
    input.device,
    op,
  );
}

/** The operands of `where`. @throws DtypeError, ShapeError, ArgumentError naming the fill */
function fillOperands(op: string, input: Tensor, mask: Tensor, value: TensorLike): Tensor[] {
  checkMask(mask, op);
  const filler = fillerOf(input, value, op);
  broadcastShapes(broadcastShapes(input.sizes, mask.sizes, op), filler.sizes, op);
  return [mask, filler, input];
}

interface WhereOptions extends OutOption {
  input?: TensorLike;
  other?: TensorLike;
}

function choose(condition: Tensor, { input, other, out }: WhereOptions): Tensor {
  if (input === undefined || other === undefined)
    throw unexpected(
      'where',
      input === undefined ? 'input' : 'other',
      'a tensor or a number',
      undefined,
    );
  return where(condition, input, other, { out });
}

addMethod('where', function (condition: Tensor, other: TensorLike | { other: TensorLike }) {
  requireTensor(condition, 'where', 'condition');
  return where(condition, this, other);
});
/**
 * `input` with `value` where the mask is true. Shapes: all broadcast, also a value with dims, which
 * PyTorch refuses. Dtypes: bool mask; the input's, to which the value is converted. Gradient:
 * input, 0 where filled, and a tensor as value.
 *
 * @throws DtypeError if the mask is not bool; ArgumentError for a number out of the range of an
 * integer dtype; ShapeError, DeviceError as {@link where}
 * @see PyTorch `torch.Tensor.masked_fill`
 */
export const maskedFill = defineFunction(
  'maskedFill(input, /, mask, value)',
  (input: Tensor, mask: Tensor, value: TensorLike): Tensor => {
    requireTensor(input, 'maskedFill');
    return dispatchOne(whereOp, fillOperands('maskedFill', input, mask, value), NO_PARAMS).to(
      input.dtype,
    );
  },
);
addMethod('maskedFill', methodOf(maskedFill));
const maskedFill_ = defineFunction(
  'maskedFill_(input, /, mask, value)',
  (input: Tensor, mask: Tensor, value: TensorLike): Tensor =>
    dispatchOne(whereOp, fillOperands('maskedFill_', input, mask, value), NO_PARAMS, input),
);
addMethod('maskedFill_', methodOf(maskedFill_));

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * This where the condition is not 0, else `other`; the same as {@link where} of (condition,
     * this, other).
     */
    where(condition: Tensor, other: TensorLike | { other: TensorLike }): Tensor;
    /** This with `value` where the mask is true; the same as {@link maskedFill}. */
    maskedFill: MethodOf<typeof maskedFill>;
    /**
     * {@link maskedFill} in place; the mask must broadcast to this. @throws InPlaceError as {@link
     * Tensor.add_}
     */
    maskedFill_: MethodOf<typeof maskedFill_, this>;
  }
}
