/**
 * Arithmetic of two operands, element by element: add, sub, mul, pow, maximum, minimum, atan2. One
 * operand may be a number.
 *
 * Shapes: both broadcast to one. Dtypes: all, promoted; numbers and 0-d tensors count only by
 * category (bool < integer < floating). Every function throws ShapeError if shapes do not
 * broadcast, DeviceError for tensors with dims on two devices, ArgumentError for an operand that is
 * neither tensor nor number, and for a bigint that no double equals. In-place twins throw the
 * errors of `add_`. All functions take the option `out` of {@link add}.
 */

import { reduced } from '../core/decompose.js';
import { dispatchOne } from '../core/dispatch.js';
import { bool } from '../core/dtype.js';
import { ArgumentError } from '../core/errors.js';
import type { Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { optionsOf } from '../core/options.js';
import type { Tensor } from '../core/tensor.js';
import { definePointwise } from './define-pointwise.js';
import { addMethod, binaryFunction, NO_PARAMS } from './method.js';
import { describe, operand, operands, type TensorLike } from './operand.js';
import { dispatchInto, type OutOption } from './out.js';
import { binarySamples } from './samples.js';
import { where } from './where.js';

const alphaParams = { alpha: param.kernel() };
type Alpha = ParamsOf<typeof alphaParams>;

const ALPHA_ONE: Alpha = Object.freeze({ alpha: 1 });

/** The gradient of each input reads the other one. */
const savesOther = {
  inputs: (needs: (i: number) => boolean) => (needs(0) ? (needs(1) ? [0, 1] : [1]) : [0]),
};
const savesBoth = { inputs: [0, 1] } as const;
/** The gradient of the first one reads neither. @internal */
export const savesBothForOther = {
  inputs: (needs: (i: number) => boolean) => (needs(1) ? [0, 1] : []),
};

/** @internal */
export const addOp: Op<Alpha> = definePointwise('add', 2, {
  out: true,
  doc: 'input + alpha * other.',
  traits: ['passes-gradient'],
  expression: 'x + p0 * y',
  linear: [[0, 1]],
  classes: 'A',
  params: alphaParams,
  vjp: (ctx, g) => [ctx.needs(0) ? g : null, ctx.needs(1) ? scaled(g, ctx.params.alpha) : null],
  samples: binarySamples({ alpha: 1 }),
});

const subOp: Op<Alpha> = definePointwise('sub', 2, {
  out: true,
  doc: 'input - alpha * other.',
  expression: 'x - p0 * y',
  linear: [[0, 1]],
  classes: 'A',
  refuses: ([a, b]) =>
    a?.dtype === bool && b?.dtype === bool
      ? 'bool tensors have no difference; use logicalXor'
      : null,
  params: alphaParams,
  vjp: (ctx, g) => [ctx.needs(0) ? g : null, ctx.needs(1) ? scaled(g, -ctx.params.alpha) : null],
  samples: binarySamples({ alpha: 2 }),
});

const mulOp: Op<object> = definePointwise('mul', 2, {
  out: true,
  doc: 'Product, element by element.',
  expression: 'x * y',
  linear: [[0], [1]],
  classes: 'A',
  saves: savesOther,
  vjp: (ctx, g) => [
    ctx.needs(0) ? g.mul(ctx.input(1)) : null,
    ctx.needs(1) ? g.mul(ctx.input(0)) : null,
  ],
  samples: binarySamples(NO_PARAMS),
});

const powOp: Op<object> = definePointwise('pow', 2, {
  out: true,
  autocast: 'float32 on cuda',
  doc: 'input to the power of exponent.',
  expression: 'm::pow(x, y)',
  classes: 'A',
  refuses: ([base, exponent]) => {
    const isNegative = exponent?.storage === null && exponent.scalarValue < 0;
    return isNegative && base?.dtype.isFloatingPoint === false && !exponent.dtype.isFloatingPoint
      ? `integers to a negative power (${exponent.scalarValue}) are no integers; convert the ` +
          'base with .float() first'
      : null;
  },
  saves: { inputs: [0, 1], outputs: [0] },
  vjp: (ctx, g) => {
    const exponent = reduced(ctx.input(1));
    const base = exponent.storage === null ? ctx.input(0) : reduced(ctx.input(0));
    return [
      ctx.needs(0) ? powBaseGradient(g, base, exponent) : null,
      ctx.needs(1) ? powExponentGradient(g, base, exponent, ctx.output(0)) : null,
    ];
  },
  samples: binarySamples(NO_PARAMS, { low: 0.3, high: 3 }),
});

/** dL/dbase = g * exponent * base^(exponent - 1), and 0 where the exponent is 0. */
function powBaseGradient(g: Tensor, base: Tensor, exponent: Tensor): Tensor {
  if (exponent.storage === null) {
    const e = exponent.scalarValue;
    if (e === 0) return g.zerosLike();
    if (e === 1) return g;
    return g.mul(e === 2 ? base.mul(2) : base.pow(e - 1).mul(e));
  }
  return where(exponent.eq(0), 0, g.mul(exponent.mul(base.pow(exponent.sub(1)))));
}

/**
 * dL/dexponent = g * base^exponent * log(base), and 0 where base is 0 and the exponent is not
 * negative.
 */
function powExponentGradient(g: Tensor, base: Tensor, exponent: Tensor, result: Tensor): Tensor {
  const logBase =
    base.storage === null ? operand(Math.log(base.scalarValue), result.device, 'pow') : base.log();
  const zeroBase =
    base.storage === null ? operand(base.scalarValue === 0, result.device, 'pow') : base.eq(0);
  const flat = logicalAndOf(zeroBase, exponent.ge(0));
  return where(flat, 0, g.mul(result.mul(logBase)));
}

function logicalAndOf(a: Tensor, b: Tensor): Tensor {
  return b.mul(a);
}

/** If two elements tie, each gets half, as in PyTorch. */
function extremum(name: 'maximum' | 'minimum', expression: string, doc: string): Op<object> {
  return definePointwise(name, 2, {
    out: true,
    doc,
    expression,
    classes: 'A',
    extreme: name === 'maximum' ? 'max' : 'min',
    saves: savesBoth,
    vjp: (ctx, g) => {
      const [a, b] = [reduced(ctx.input(0)), reduced(ctx.input(1))];
      const half = where(eqOf(a, b), g.div(2), g);
      const loses = name === 'maximum' ? ltOf : gtOf;
      return [
        ctx.needs(0) ? where(loses(a, b), 0, half) : null,
        ctx.needs(1) ? where(loses(b, a), 0, half) : null,
      ];
    },
    samples: binarySamples(NO_PARAMS),
  });
}
const eqOf = (a: Tensor, b: Tensor): Tensor => (a.storage === null ? b.eq(a) : a.eq(b));
const ltOf = (a: Tensor, b: Tensor): Tensor => (a.storage === null ? b.gt(a) : a.lt(b));
const gtOf = (a: Tensor, b: Tensor): Tensor => (a.storage === null ? b.lt(a) : a.gt(b));

const maximumOp = extremum('maximum', 'm::maximum(x, y)', 'The larger of two elements; NaN wins.');
const minimumOp = extremum('minimum', 'm::minimum(x, y)', 'The smaller of two elements; NaN wins.');

const atan2Op: Op<object> = definePointwise('atan2', 2, {
  out: true,
  autocast: 'widest on cuda',
  doc: 'The angle of the point (other, input), in radians.',
  expression: 'm::atan2(x, y)',
  saves: savesBoth,
  vjp: (ctx, g) => {
    // squares of integers would overflow
    const [y, x] = [reduced(ctx.input(0)).to(g.dtype), reduced(ctx.input(1)).to(g.dtype)];
    const perNorm = g.div(add(mul(x, x), mul(y, y)));
    return [ctx.needs(0) ? perNorm.mul(x) : null, ctx.needs(1) ? perNorm.mul(y).neg() : null];
  },
  samples: binarySamples(NO_PARAMS, { low: 0.2, high: 2 }),
});

function scaled(g: Tensor, factor: number): Tensor {
  return factor === 1 ? g : g.mul(factor);
}

/**
 * input + alpha * other; for bools, whether one is true. Shapes: both broadcast. Dtypes: promoted.
 * Gradient: both; none with `out`, which receives the result and is returned.
 *
 * @throws ShapeError if shapes do not broadcast, or `out` has another shape; DeviceError for two
 * devices; DtypeError if `out` has a dtype of a lower category; AutogradError for `out` with a
 * tensor that requires a gradient, outside noGrad; ArgumentError for a value that is not a tensor,
 * another option than alpha (1 by default) and out, or a fractional alpha where both are integers
 * @see PyTorch `torch.add`
 */
export function add(
  input: TensorLike,
  other: TensorLike,
  options?: { alpha?: number } & OutOption,
): Tensor {
  const both = operands(input, other, 'add');
  if (options === undefined) return dispatchOne(addOp, both, ALPHA_ONE);
  optionsOf('add', options, 'alpha out');
  const { out, ...rest } = options;
  return dispatchInto(addOp, both, alphaOf(rest, 'add', both), out);
}

/**
 * input - alpha * other. Shapes: both broadcast. Dtypes: promoted; bools are not subtracted, as in
 * PyTorch. Gradient: both.
 *
 * @throws DtypeError for two bools; ShapeError, DeviceError and ArgumentError as {@link add}
 * @see PyTorch `torch.sub`
 */
export function sub(
  input: TensorLike,
  other: TensorLike,
  options?: { alpha?: number } & OutOption,
): Tensor {
  const both = operands(input, other, 'sub');
  if (options === undefined) return dispatchOne(subOp, both, ALPHA_ONE);
  optionsOf('sub', options, 'alpha out');
  const { out, ...rest } = options;
  return dispatchInto(subOp, both, alphaOf(rest, 'sub', both), out);
}

/** @throws ArgumentError for other options, and a fraction between integers */
function alphaOf(
  options: { alpha?: number },
  op: string,
  [a, b]: readonly [Tensor, Tensor],
): Alpha {
  optionsOf(op, options, 'alpha');
  const { alpha = 1 } = options;
  if (typeof alpha !== 'number')
    throw new ArgumentError(`${op}: expected alpha to be a number, got ${describe(alpha)}`, {
      op,
      alpha,
    });
  if (alpha === 1) return ALPHA_ONE;
  if (!Number.isInteger(alpha) && !a.dtype.isFloatingPoint && !b.dtype.isFloatingPoint)
    throw new ArgumentError(
      `${op}: for ${a.dtype.name} and ${b.dtype.name}, alpha must be an integer, got ${alpha}. ` +
        'Convert one with .float() first.',
      { op, alpha },
    );
  return { alpha };
}

/**
 * input * other; for bools, whether both are true. Shapes: both broadcast. Dtypes: promoted.
 * Gradient: both; none with `out`.
 *
 * @throws ShapeError if shapes do not broadcast; DeviceError for two devices; ArgumentError for a
 * value that is not a tensor; and what {@link add} throws for `out`
 * @see PyTorch `torch.mul`
 */
export const mul = binaryFunction('mul', mulOp);
/**
 * input to the power of other. Dtypes: promoted; negative exponents in an integer tensor give 0,
 * except for bases 1 and -1. Gradient: both.
 *
 * @throws DtypeError for integers to a negative plain integer; ShapeError, DeviceError,
 * ArgumentError as {@link mul}
 * @see PyTorch `torch.pow`
 */
export const pow = binaryFunction('pow', powOp);
/**
 * The larger of two elements; NaN wins. Shapes: both broadcast. Dtypes: promoted. Gradient: both,
 * halved on ties.
 *
 * @throws ShapeError, DeviceError, ArgumentError as {@link mul}
 * @see PyTorch `torch.maximum`
 */
export const maximum = binaryFunction('maximum', maximumOp);
/**
 * The smaller of two elements; NaN wins. Shapes: both broadcast. Dtypes: promoted. Gradient: both,
 * halved on ties.
 *
 * @throws ShapeError, DeviceError, ArgumentError as {@link mul}
 * @see PyTorch `torch.minimum`
 */
export const minimum = binaryFunction('minimum', minimumOp);
/**
 * The angle of the point (other, input) in radians, from -pi to pi. Dtypes: floating, the default
 * one for integers. Gradient: both.
 *
 * @throws ShapeError, DeviceError, ArgumentError as {@link mul}
 * @see PyTorch `torch.atan2`
 */
export const atan2 = binaryFunction('atan2', atan2Op);

for (const [name, op] of [
  ['add', addOp],
  ['sub', subOp],
] as const) {
  addMethod(name, function (other: TensorLike, options?: { alpha?: number }) {
    const both: [Tensor, Tensor] = [this, operand(other, this.device, name)];
    return dispatchOne(op, both, options === undefined ? ALPHA_ONE : alphaOf(options, name, both));
  });
  const inPlace = `${name}_`;
  addMethod(inPlace, function (other: TensorLike, options?: { alpha?: number }) {
    const both: [Tensor, Tensor] = [this, operand(other, this.device, inPlace)];
    const params = options === undefined ? ALPHA_ONE : alphaOf(options, inPlace, both);
    return dispatchOne(op, both, params, this);
  });
}

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * this + alpha * other; the same as {@link add}.
     *
     * @example
     * tensor([1, 2]).add(10); // [11, 12]
     * tensor([1, 2]).add(tensor([1, 1]), { alpha: 3 }); // [4, 5]
     */
    add(other: TensorLike, options?: { alpha?: number }): Tensor;
    /**
     * {@link add} in place: into this tensor, which keeps its shape and dtype, as all methods whose
     * name ends with an underscore. Gradient: as `add`.
     *
     * @throws InPlaceError for a leaf that requires a gradient (outside noGrad) and for expanded
     * memory; ShapeError if the result is larger; DtypeError if it is of a higher category
     * (floating into integers); and what `add` throws
     * @example
     * const t = zeros([2]);
     * t.add_(1);
     * t; // [1, 1]
     */
    add_(other: TensorLike, options?: { alpha?: number }): this;
    /**
     * this - alpha * other; the same as {@link sub}.
     *
     * @example
     * tensor([5, 7]).sub(tensor([1, 2])); // [4, 5]
     */
    sub(other: TensorLike, options?: { alpha?: number }): Tensor;
    /** {@link sub} in place; see {@link Tensor.add_}. */
    sub_(other: TensorLike, options?: { alpha?: number }): this;
    /**
     * this * other; the same as {@link mul}.
     *
     * @example
     * tensor([1, 2]).mul(3); // [3, 6]
     * tensor([[1], [2]]).mul(tensor([10, 20])); // [[10, 20], [20, 40]]
     */
    mul(other: TensorLike): Tensor;
    /**
     * {@link mul} in place; see {@link Tensor.add_}.
     *
     * @example
     * const t = ones([2]);
     * t.mul_(3);
     * t; // [3, 3]
     */
    mul_(other: TensorLike): this;
    /** This to the power of `exponent`; {@link pow}. @example tensor([1, 2]).pow(3); // [1, 8] */
    pow(exponent: TensorLike): Tensor;
    /** {@link pow} in place; see {@link Tensor.add_}. */
    pow_(exponent: TensorLike): this;
    /** The larger of two elements; NaN wins; the same as {@link maximum}. */
    maximum(other: TensorLike): Tensor;
    /** {@link maximum} in place; see {@link Tensor.add_}. */
    maximum_(other: TensorLike): this;
    /** The smaller of two elements; NaN wins; the same as {@link minimum}. */
    minimum(other: TensorLike): Tensor;
    /** {@link minimum} in place; see {@link Tensor.add_}. */
    minimum_(other: TensorLike): this;
    /** The angle of the point (other, this), in radians; the same as {@link atan2}. */
    atan2(other: TensorLike): Tensor;
    /** {@link atan2} in place; see {@link Tensor.add_}. */
    atan2_(other: TensorLike): this;
  }
}
