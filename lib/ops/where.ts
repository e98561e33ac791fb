/**
 * Choice and mixing of elements: where, maskedFill, clamp, addcmul, addcdiv, lerp. Shapes
 * broadcast. All throw ShapeError where they do not, DeviceError for tensors on two devices,
 * ArgumentError for what is no tensor (or number, where one may be).
 */

import { reduced } from '../core/decompose.js';
import { dispatchOne } from '../core/dispatch.js';
import { bool, type DType, uint8 } from '../core/dtype.js';
import { iinfo } from '../core/dtype-info.js';
import { ArgumentError, DtypeError } from '../core/errors.js';
import type { Op, Sample } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { optionsOf, unexpected } from '../core/options.js';
import { broadcastShapes } from '../core/shape.js';
import { defineFunction, isOptions, type MethodOf, methodOf } from '../core/signature.js';
import { Tensor } from '../core/tensor.js';
import { holdsIntegers, toInteger } from '../core/values.js';
import { writeBack } from './composite.js';
import { definePointwise } from './define-pointwise.js';
import { nonzero } from './index-tensors.js';
import { addMethod, NO_PARAMS } from './method.js';
import { describe, operand, requireTensor, type TensorLike } from './operand.js';
import { sampleTensor, unarySamples } from './samples.js';

function ternarySamples<P>(
  params: P,
  first: Parameters<typeof sampleTensor>[1] = {},
): () => Sample<P>[] {
  return () => [
    {
      inputs: [
        sampleTensor([3, 4], first),
        sampleTensor([4], { seed: 3, low: 0.5 }),
        sampleTensor([3, 1], { seed: 5, low: 0.5 }),
      ],
      params,
    },
    {
      inputs: [
        sampleTensor([5], first),
        sampleTensor([5], { seed: 3, low: 0.5 }),
        sampleTensor([5], { seed: 5, low: 0.5 }),
      ],
      params,
    },
  ];
}

const whereOp: Op<object> = definePointwise('where', 3, {
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
 * one without dims (which blocks).
 *
 * Shapes: all three broadcast. Dtypes: condition bool (or uint8), of any dtype where it stands
 * alone; the others promoted. Gradient: input and other.
 *
 * @throws DtypeError for a condition of another dtype; ShapeError if shapes do not broadcast;
 * DeviceError for two devices; ArgumentError for what is neither tensor nor number
 * @see PyTorch `torch.where`
 */
export function where(condition: Tensor): Tensor[];
/** {@link where} with both choices. */
export function where(
  condition: Tensor,
  input: TensorLike,
  other: TensorLike | { other: TensorLike },
): Tensor;
/** The same by name. */
export function where(condition: Tensor, options: { input: TensorLike; other: TensorLike }): Tensor;
export function where(
  condition: Tensor,
  input?: TensorLike | WhereOptions,
  other?: TensorLike | WhereOptions,
): Tensor | Tensor[] {
  requireTensor(condition, 'where', 'condition');
  if (isOptions(input))
    return choose(condition, optionsOf('where', input as WhereOptions, 'input other'));
  if (isOptions(other))
    return choose(condition, {
      input: input as TensorLike,
      ...optionsOf('where', other as WhereOptions, 'other'),
    });
  if (input === undefined && other === undefined) return nonzero(condition, { asTuple: true });
  if (condition.dtype !== bool && condition.dtype !== uint8)
    throw new DtypeError(
      `where: expected a bool condition, got ${condition.dtype.name}; compare it, such as with .ne(0)`,
      { op: 'where', dtype: condition.dtype.name },
    );
  const { device } = condition;
  return dispatchOne(
    whereOp,
    [
      condition,
      operand(input as TensorLike, device, 'where'),
      operand(other as TensorLike, device, 'where'),
    ],
    NO_PARAMS,
  );
}

/** @throws DtypeError if the mask is not bool. */
function checkMask(mask: Tensor, op: string): void {
  requireTensor(mask, op, 'mask');
  if (mask.dtype !== bool)
    throw new DtypeError(`${op}: expected a bool mask, got ${mask.dtype.name}`, {
      op,
      dtype: mask.dtype.name,
    });
}

/**
 * The value of a fill in the dtype that it is for. @throws ArgumentError for a number that integers
 * do not hold, which would be taken for another one.
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

/**
 * The operands of `where`. @throws DtypeError, ShapeError, ArgumentError by the name of the fill
 */
function fillOperands(op: string, input: Tensor, mask: Tensor, value: TensorLike): Tensor[] {
  checkMask(mask, op);
  const filler = fillerOf(input, value, op);
  broadcastShapes(broadcastShapes(input.shape, mask.shape, op), filler.shape, op);
  return [mask, filler, input];
}

interface WhereOptions {
  input?: TensorLike;
  other?: TensorLike;
}

function choose(condition: Tensor, { input, other }: WhereOptions): Tensor {
  if (input === undefined || other === undefined)
    throw unexpected(
      'where',
      input === undefined ? 'input' : 'other',
      'a tensor or a number',
      undefined,
    );
  return where(condition, input, other);
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
 * @throws DtypeError if the mask is not bool; ArgumentError for a number that integers of the dtype
 * do not hold; ShapeError, DeviceError as {@link where}
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

const boundsParams = { min: param.kernel(), max: param.kernel() };
type Bounds = ParamsOf<typeof boundsParams>;

const clampOp: Op<Bounds> = definePointwise('clamp', 1, {
  doc: 'Each element moved into [min, max].',
  expression: 'm::minimum(m::maximum(x, p0), p1)',
  classes: 'A',
  params: boundsParams,
  saves: { inputs: [0] },
  vjp: (ctx, g) => {
    const x = reduced(ctx.input(0));
    return [where(x.ge(ctx.params.min).logicalAnd(x.le(ctx.params.max)), g, 0)];
  },
  samples: unarySamples({ min: -0.5, max: 0.8 }),
});

/**
 * Each element moved into `[min, max]` (max, if that is less); either bound may be left out. Bounds
 * are numbers, or tensors that broadcast.
 *
 * Shapes: as the input, or broadcast. Dtypes: all; kept with two plain bounds and for floating
 * ones, else promoted. Gradient: yes, 0 outside; of tensors as bounds too, where an element is
 * beyond them.
 *
 * @throws ArgumentError if both are left out, or are neither number nor tensor; ShapeError,
 * DeviceError for tensors that do not meet
 * @see PyTorch `torch.clamp`
 */
export const clamp = defineFunction(
  'clamp(input, /, min, max)',
  (input: Tensor, min: TensorLike | null = null, max: TensorLike | null = null): Tensor => {
    return clampInto(input, min, max, 'clamp', null);
  },
);

/** @throws ArgumentError for a bound that the dtype does not hold, as it would wrap */
function checkHeld(op: string, dtype: DType, limit: number): void {
  const { min, max } = iinfo(dtype);
  if (limit < min || limit > max)
    throw new ArgumentError(
      `${op}: ${dtype.name} does not hold the bound ${limit}; its range is ${min} to ${max}`,
      { op, limit, dtype: dtype.name },
    );
}

/**
 * The gradient of an element that equals its bound is the element's alone, where `maximum` would
 * share it; at NaN it is 0.
 */
function boundedBy(input: Tensor, limit: TensorLike, side: 'maximum' | 'minimum'): Tensor {
  if (!input.requiresGrad && !(limit instanceof Tensor && limit.requiresGrad))
    return input[side](limit);
  const [within, beyond] =
    side === 'maximum' ? [input.ge(limit), input.lt(limit)] : [input.le(limit), input.gt(limit)];
  return where(
    within,
    input,
    where(beyond, limit, input.detach()[side](limit instanceof Tensor ? limit.detach() : limit)),
  );
}

function clampInto(
  input: Tensor,
  min: TensorLike | null,
  max: TensorLike | null,
  op: string,
  into: Tensor | null,
): Tensor {
  requireTensor(input, op);
  if (min === null && max === null)
    throw new ArgumentError('clamp: expected min, max or both', { op: 'clamp' });
  const integers = !input.dtype.isFloatingPoint;
  const isApart = (limit: TensorLike | null): boolean =>
    limit instanceof Tensor ||
    typeof limit === 'bigint' ||
    (integers && typeof limit === 'number' && (input.dtype === bool || !Number.isInteger(limit)));
  if (isApart(min) || isApart(max)) return clampBySides(input, min, max, op, into);
  for (const limit of [min, max]) {
    if (limit === null) continue;
    if (typeof limit !== 'number' && typeof limit !== 'boolean')
      throw new ArgumentError(
        `clamp: expected bounds that are numbers or tensors, got ${describe(limit)}`,
        { op: 'clamp', given: describe(limit) },
      );
    if (integers && input.dtype !== bool) checkHeld(op, input.dtype, Number(limit));
  }
  // No double is a bound that leaves every int64 as it is.
  if (integers && (min === null || max === null)) return clampBySides(input, min, max, op, into);
  return dispatchOne(
    clampOp,
    [input],
    { min: Number(min ?? Number.NEGATIVE_INFINITY), max: Number(max ?? Number.POSITIVE_INFINITY) },
    into,
  );
}

/** Bounds that are tensors, that promote, or that no double stands for. */
function clampBySides(
  input: Tensor,
  min: TensorLike | null,
  max: TensorLike | null,
  op: string,
  into: Tensor | null,
): Tensor {
  // The gradient reads what is about to be overwritten.
  const given = into?.requiresGrad ? input.clone() : input;
  const raised = min === null ? given : boundedBy(given, min, 'maximum');
  const bounded = max === null ? raised : boundedBy(raised, max, 'minimum');
  return into === null ? bounded : writeBack(op, into, bounded);
}

addMethod('clamp', methodOf(clamp));
const clamp_ = defineFunction(
  'clamp_(input, /, min, max)',
  (input: Tensor, min: TensorLike | null = null, max: TensorLike | null = null): Tensor =>
    clampInto(input, min, max, 'clamp_', input),
);
addMethod('clamp_', methodOf(clamp_));

const valueParams = { value: param.kernel() };
type Value = ParamsOf<typeof valueParams>;

const addcmulOp: Op<Value> = definePointwise('addcmul', 3, {
  autocast: 'widest on cuda',
  doc: 'input + value * tensor1 * tensor2.',
  expression: 'x + p0 * y * z',
  linear: [
    [0, 1],
    [0, 2],
  ],
  classes: 'A',
  params: valueParams,
  saves: { inputs: [1, 2] },
  vjp: (ctx, g) => {
    const scaled = g.mul(ctx.params.value);
    return [
      g,
      ctx.needs(1) ? scaled.mul(ctx.input(2)) : null,
      ctx.needs(2) ? scaled.mul(ctx.input(1)) : null,
    ];
  },
  samples: ternarySamples({ value: 0.5 }),
});

const addcdivOp: Op<Value> = definePointwise('addcdiv', 3, {
  autocast: 'widest on cuda',
  doc: 'input + value * tensor1 / tensor2.',
  expression: 'x + p0 * y / z',
  linear: [[0, 1]],
  params: valueParams,
  saves: { inputs: [1, 2] },
  vjp: (ctx, g) => {
    const divisor = reduced(ctx.input(2));
    const scaled = g.mul(ctx.params.value).div(divisor);
    return [
      g,
      ctx.needs(1) ? scaled : null,
      ctx.needs(2) ? scaled.mul(ctx.input(1)).div(divisor).neg() : null,
    ];
  },
  samples: ternarySamples({ value: 0.5 }),
});

const lerpOp: Op<object> = definePointwise('lerp', 3, {
  doc: 'input + weight * (end - input).',
  expression: 'm::lerp(x, y, z)',
  linear: [[0, 1]],
  saves: { inputs: (needs) => (needs(2) ? [0, 1, 2] : [2]) },
  vjp: (ctx, g) => {
    const weight = reduced(ctx.input(2));
    return [
      ctx.needs(0) ? g.sub(g.mul(weight)) : null,
      ctx.needs(1) ? g.mul(weight) : null,
      ctx.needs(2) ? g.mul(ctx.input(1).sub(ctx.input(0))) : null,
    ];
  },
  samples: ternarySamples(NO_PARAMS),
});

interface ValueOption {
  /** Factor of the product or the quotient; 1 by default. */
  value?: number;
}

/**
 * The op's function, and its twin in place. Errors: ArgumentError for what is no tensor, and a
 * fraction that a product of integers would cut off.
 */
function combination(op: Op<Value>, inPlace: boolean) {
  const name = inPlace ? `${op.name}_` : op.name;
  const fn = defineFunction(
    `${name}(input, /, tensor1, tensor2, *, value)`,
    (input: Tensor, tensor1: Tensor, tensor2: Tensor, { value = 1 }: ValueOption = {}): Tensor => {
      requireTensor(input, name);
      requireTensor(tensor1, name, 'tensor1');
      requireTensor(tensor2, name, 'tensor2');
      const operands = [input, tensor1, tensor2];
      if (
        op === addcmulOp &&
        !Number.isInteger(value) &&
        operands.every((t) => !t.dtype.isFloatingPoint)
      )
        throw new ArgumentError(
          `${name}: the value ${value} is no integer, and all operands are. Convert one with .float().`,
          { op: name, value },
        );
      return dispatchOne(op, operands, { value }, inPlace ? input : null);
    },
  );
  addMethod(name, methodOf(fn));
  return fn;
}

/**
 * input + value * tensor1 * tensor2, with `value` 1. Shapes: all broadcast. Dtypes: promoted;
 * integers stay. Gradient: all.
 *
 * @throws ShapeError if shapes do not broadcast; DeviceError for two devices; ArgumentError for a
 * fractional value of integers
 * @see PyTorch `torch.addcmul`
 */
export const addcmul = combination(addcmulOp, false);
const addcmul_ = combination(addcmulOp, true);

/**
 * input + value * tensor1 / tensor2, with `value` 1. Shapes: all broadcast. Dtypes: promoted;
 * integers, which PyTorch refuses, give the default floating one. Gradient: all.
 *
 * @throws ShapeError if shapes do not broadcast; DeviceError for two devices
 * @see PyTorch `torch.addcdiv`
 */
export const addcdiv = combination(addcdivOp, false);
const addcdiv_ = combination(addcdivOp, true);

/**
 * input + weight * (end - input): a number or tensor of weights from 0 (input) to 1 (end), or
 * outside. Shapes: all broadcast. Dtypes: promoted; integers give the default floating one.
 * Gradient: all.
 *
 * @throws ShapeError if shapes do not broadcast; DeviceError for two devices; ArgumentError for a
 * weight that is neither tensor nor number
 * @see PyTorch `torch.lerp`
 */
export const lerp = defineFunction(
  'lerp(input, /, end, weight)',
  (input: Tensor, end: Tensor, weight: TensorLike): Tensor => {
    requireTensor(input, 'lerp');
    requireTensor(end, 'lerp', 'end');
    return dispatchOne(lerpOp, [input, end, operand(weight, input.device, 'lerp')], NO_PARAMS);
  },
);

addMethod('lerp', methodOf(lerp));
const lerp_ = defineFunction(
  'lerp_(input, /, end, weight)',
  (input: Tensor, end: Tensor, weight: TensorLike): Tensor => {
    requireTensor(end, 'lerp_', 'end');
    return dispatchOne(
      lerpOp,
      [input, end, operand(weight, input.device, 'lerp_')],
      NO_PARAMS,
      input,
    );
  },
);
addMethod('lerp_', methodOf(lerp_));

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
    /** Each element moved into [min, max]; the same as {@link clamp}. */
    clamp: MethodOf<typeof clamp>;
    /** {@link clamp} in place; see {@link Tensor.add_}. */
    clamp_: MethodOf<typeof clamp_, this>;
    /** this + value * tensor1 * tensor2; the same as {@link addcmul}. */
    addcmul: MethodOf<typeof addcmul>;
    /** {@link addcmul} in place; see {@link Tensor.add_}. */
    addcmul_: MethodOf<typeof addcmul_, this>;
    /** this + value * tensor1 / tensor2; the same as {@link addcdiv}. */
    addcdiv: MethodOf<typeof addcdiv>;
    /** {@link addcdiv} in place; see {@link Tensor.add_}. */
    addcdiv_: MethodOf<typeof addcdiv_, this>;
    /** this + weight * (end - this); the same as {@link lerp}. */
    lerp: MethodOf<typeof lerp>;
    /** {@link lerp} in place; see {@link Tensor.add_}. */
    lerp_: MethodOf<typeof lerp_, this>;
  }
}
