/**
 * Arithmetic of three operands, element by element: addcmul, addcdiv, lerp. The functions take the
 * option `out` of {@link add}.
 */

import { reduced } from '../core/decompose.js';
import { dispatchOne } from '../core/dispatch.js';
import { ArgumentError } from '../core/errors.js';
import type { Op, Sample } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { definePointwise } from './define-pointwise.js';
import { addMethod, NO_PARAMS } from './method.js';
import { operand, requireTensor, type TensorLike } from './operand.js';
import { dispatchInto, type OutOption } from './out.js';
import { sampleTensor } from './samples.js';

/** @internal */
export function ternarySamples<P>(
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

const valueParams = { value: param.kernel() };
type Value = ParamsOf<typeof valueParams>;

const addcmulOp: Op<Value> = definePointwise('addcmul', 3, {
  out: true,
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
  out: true,
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
  out: true,
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
 * @throws ArgumentError for a value that is not a tensor, and for a fractional `value` of integers
 */
function checkCombined(name: string, operands: readonly Tensor[], value: number): void {
  const [input, tensor1, tensor2] = operands;
  requireTensor(input, name);
  requireTensor(tensor1, name, 'tensor1');
  requireTensor(tensor2, name, 'tensor2');
  if (
    name.startsWith('addcmul') &&
    !Number.isInteger(value) &&
    operands.every((t) => !t.dtype.isFloatingPoint)
  )
    throw new ArgumentError(
      `${name}: the value ${value} is no integer, and all operands are. Convert ` +
        'one with .float().',
      { op: name, value },
    );
}

/** The op's function. */
function combination(op: Op<Value>) {
  const { name } = op;
  return defineFunction(
    `${name}(input, /, tensor1, tensor2, *, value, out)`,
    (
      input: Tensor,
      tensor1: Tensor,
      tensor2: Tensor,
      { value = 1, out }: ValueOption & OutOption = {},
    ): Tensor => {
      const operands = [input, tensor1, tensor2];
      checkCombined(name, operands, value);
      return dispatchInto(op, operands, { value }, out);
    },
  );
}

/** The op's method, or its twin in place. */
function combinationMethod(op: Op<Value>, inPlace: boolean) {
  const name = inPlace ? `${op.name}_` : op.name;
  const fn = defineFunction(
    `${name}(input, /, tensor1, tensor2, *, value)`,
    (input: Tensor, tensor1: Tensor, tensor2: Tensor, { value = 1 }: ValueOption = {}): Tensor => {
      const operands = [input, tensor1, tensor2];
      checkCombined(name, operands, value);
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
export const addcmul = combination(addcmulOp);
const addcmulMethod = combinationMethod(addcmulOp, false);
const addcmul_ = combinationMethod(addcmulOp, true);

/**
 * input + value * tensor1 / tensor2, with `value` 1. Shapes: all broadcast. Dtypes: promoted;
 * integers, which PyTorch refuses, give the default floating one. Gradient: all.
 *
 * @throws ShapeError if shapes do not broadcast; DeviceError for two devices
 * @see PyTorch `torch.addcdiv`
 */
export const addcdiv = combination(addcdivOp);
const addcdivMethod = combinationMethod(addcdivOp, false);
const addcdiv_ = combinationMethod(addcdivOp, true);

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
  'lerp(input, /, end, weight, *, out)',
  (input: Tensor, end: Tensor, weight: TensorLike, { out }: OutOption = {}): Tensor =>
    dispatchInto(lerpOp, lerpOperands(input, end, weight), NO_PARAMS, out),
);

function lerpOperands(input: Tensor, end: Tensor, weight: TensorLike): Tensor[] {
  requireTensor(input, 'lerp');
  requireTensor(end, 'lerp', 'end');
  return [input, end, operand(weight, input.device, 'lerp')];
}

const lerpMethod = defineFunction(
  'lerp(input, /, end, weight)',
  (input: Tensor, end: Tensor, weight: TensorLike): Tensor =>
    dispatchOne(lerpOp, lerpOperands(input, end, weight), NO_PARAMS),
);
addMethod('lerp', methodOf(lerpMethod));
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
    /** this + value * tensor1 * tensor2; the same as {@link addcmul}. */
    addcmul: MethodOf<typeof addcmulMethod>;
    /** {@link addcmul} in place; see {@link Tensor.add_}. */
    addcmul_: MethodOf<typeof addcmul_, this>;
    /** this + value * tensor1 / tensor2; the same as {@link addcdiv}. */
    addcdiv: MethodOf<typeof addcdivMethod>;
    /** {@link addcdiv} in place; see {@link Tensor.add_}. */
    addcdiv_: MethodOf<typeof addcdiv_, this>;
    /** this + weight * (end - this); the same as {@link lerp}. */
    lerp: MethodOf<typeof lerpMethod>;
    /** {@link lerp} in place; see {@link Tensor.add_}. */
    lerp_: MethodOf<typeof lerp_, this>;
  }
}
