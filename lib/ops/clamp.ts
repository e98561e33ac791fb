/** Limits the elements of a tensor to a range, whose bounds are numbers or tensors. */

import { reduced } from '../core/decompose.js';
import { dispatchOne } from '../core/dispatch.js';
import { bool, type DType } from '../core/dtype.js';
import { iinfo } from '../core/dtype-info.js';
import { ArgumentError } from '../core/errors.js';
import type { Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import { Tensor } from '../core/tensor.js';
import { writeBack } from './composite.js';
import { definePointwise } from './define-pointwise.js';
import { addMethod } from './method.js';
import { describe, requireTensor, type TensorLike } from './operand.js';
import { checkOut, type OutOption } from './out.js';
import { unarySamples } from './samples.js';
import { where } from './where.js';

const boundsParams = { min: param.kernel(), max: param.kernel() };
type Bounds = ParamsOf<typeof boundsParams>;

const clampOp: Op<Bounds> = definePointwise('clamp', 1, {
  out: true,
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
 * ones, else promoted. Gradient: yes, 0 outside; bounds that are tensors get the gradients of the
 * elements beyond them; none with `out`, as {@link add}.
 *
 * @throws ArgumentError if both are left out, or are neither number nor tensor; ShapeError,
 * DeviceError for bounds that do not broadcast or are on another device
 * @see PyTorch `torch.clamp`
 */
export const clamp = defineFunction(
  'clamp(input, /, min, max, *, out)',
  (
    input: Tensor,
    min: TensorLike | null = null,
    max: TensorLike | null = null,
    { out }: OutOption = {},
  ): Tensor => {
    if (out !== undefined)
      checkOut(
        'clamp',
        [input, min, max].filter((t) => t instanceof Tensor),
        out,
      );
    return clampInto(input, min, max, 'clamp', out ?? null);
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
 * An element that equals its bound gets the whole gradient, while `maximum` would share it with the
 * bound; the gradient at NaN is 0.
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
    throw new ArgumentError(`${op}: expected min, max or both`, { op });
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
        `${op}: expected bounds that are numbers or tensors, got ${describe(limit)}`,
        { op, given: describe(limit) },
      );
    if (integers && input.dtype !== bool) checkHeld(op, input.dtype, Number(limit));
  }
  // No double is a bound that leaves every int64 unchanged.
  if (integers && (min === null || max === null)) return clampBySides(input, min, max, op, into);
  return dispatchOne(
    clampOp,
    [input],
    { min: Number(min ?? Number.NEGATIVE_INFINITY), max: Number(max ?? Number.POSITIVE_INFINITY) },
    into,
  );
}

/** Clamps by bounds that are tensors, that promote the dtype, or that no double equals. */
function clampBySides(
  input: Tensor,
  min: TensorLike | null,
  max: TensorLike | null,
  op: string,
  into: Tensor | null,
): Tensor {
  // The gradient reads values that are about to be overwritten.
  const given = into?.requiresGrad ? input.clone() : input;
  const raised = min === null ? given : boundedBy(given, min, 'maximum');
  const bounded = max === null ? raised : boundedBy(raised, max, 'minimum');
  return into === null ? bounded : writeBack(op, into, bounded);
}

const clampMethod = defineFunction(
  'clamp(input, /, min, max)',
  (input: Tensor, min: TensorLike | null = null, max: TensorLike | null = null): Tensor =>
    clampInto(input, min, max, 'clamp', null),
);
addMethod('clamp', methodOf(clampMethod));
const clamp_ = defineFunction(
  'clamp_(input, /, min, max)',
  (input: Tensor, min: TensorLike | null = null, max: TensorLike | null = null): Tensor =>
    clampInto(input, min, max, 'clamp_', input),
);
addMethod('clamp_', methodOf(clamp_));

declare module '../core/tensor.js' {
  interface Tensor {
    /** Each element moved into [min, max]; the same as {@link clamp}. */
    clamp: MethodOf<typeof clampMethod>;
    /** {@link clamp} in place; see {@link Tensor.add_}. */
    clamp_: MethodOf<typeof clamp_, this>;
  }
}
