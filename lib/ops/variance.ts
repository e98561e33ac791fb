/** Second moments over dims: var, std, varMean. */

import { reduced } from '../core/decompose.js';
import { dispatch } from '../core/dispatch.js';
import { float32 } from '../core/dtype.js';
import { defineOp, type Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { checkFlag } from '../core/options.js';
import { wrapDims } from '../core/shape.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { addMethod } from './method.js';
import { requireFloating, requireTensor } from './operand.js';
import {
  type Dims,
  lowerReduction,
  reducedShape,
  reductionParams,
  reductionSamples,
  restore,
} from './reduce.js';
import { keptDimsRule } from './sharding/reductions.js';
import { where } from './where.js';

const varianceParams = {
  ...reductionParams,
  correction: param.kernel(),
  /** 16-bit floats give float32 results: the range of a variance is the square of theirs. */
  wide: param.value<boolean>(),
};
type Variance = ParamsOf<typeof varianceParams>;

const varMeanOp: Op<Variance> = defineOp({
  name: 'varMean',
  inputs: ['x'],
  outputs: ['variance', 'mean'],
  operands:
    '(x: float [...]) -> (variance: [...], mean: [...])' +
    ' where reducesTo(x, variance, reducedNdim), reducesTo(x, mean, reducedNdim)',
  params: varianceParams,
  doc: 'Variance and mean over dims; the sum of squares is divided by n - correction.',
  kernel: 'reduce_var',
  sharding: keptDimsRule<Variance>(2, true),
  meta: ([input], { dims, keepdim, wide }) => {
    const dtype = wide && input.dtype.itemsize === 2 ? float32 : input.dtype;
    const meta = {
      shape: reducedShape(input.sizes, dims, keepdim),
      strides: null,
      dtype,
      device: input.device,
    };
    return [meta, meta];
  },
  lower: (command, [x], outputs, { dims }) => lowerReduction(command, x, outputs, dims),
  saves: { inputs: [0], outputs: [1] },
  vjp: (ctx, gVar, gMean) => {
    const x = ctx.input(0);
    const count = ctx.params.dims.reduce((n, d) => n * (x.sizes[d] as number), 1);
    const centred = gVar
      ? restore(gVar, x.sizes, ctx.params)
          .mul(x.sub(restore(ctx.output(1), x.sizes, ctx.params)))
          .mul(2 / (count - ctx.params.correction))
      : null;
    const shared = gMean ? restore(gMean.div(count), x.sizes, ctx.params) : null;
    return [(centred && shared ? centred.add(shared) : (centred ?? shared))?.to(x.dtype) ?? null];
  },
  decompose: ([input], { dims, keepdim, correction }) => {
    const count = dims.reduce((n, d) => n * (input.sizes[d] as number), 1);
    const mean = reduced(input.mean(dims, { keepdim: true }));
    const variance = input
      .sub(mean)
      .square()
      .sum(dims, { keepdim })
      .div(Math.max(0, count - correction));
    return [variance, keepdim ? mean : mean.squeeze(dims)];
  },
  samples: reductionSamples<Variance>({ correction: 1, wide: false }),
});

/** An option of `var`, `std` and their like. */
export interface CorrectionOption {
  /**
   * Subtracted from the count: 1, the default, for the sample variance, 0 for that of the
   * population. `unbiased` is the same as a boolean.
   */
  correction?: number;
}

/** Options of `var` and `std`. */
export interface VarianceOptions extends CorrectionOption {
  /** As in {@link ReduceOptions}. */ keepdim?: boolean;
}

/**
 * {@link variance | var} and mean over dims, in one pass. Gradient: yes, of both. @throws
 * DtypeError unless floating @see PyTorch `torch.var_mean`
 */
export const varMean = defineFunction(
  'varMean(input, /, dim, unbiased, keepdim, *, correction)',
  (
    input: Tensor,
    dim: Dims | boolean = null,
    unbiased: boolean | null = null,
    keepdim = false,
    options: CorrectionOption = {},
  ): [Tensor, Tensor] => varMeanAs('varMean', input, dim, unbiased, keepdim, options),
);

/**
 * {@link varMean} for functions of other names. A boolean in the position of dims is `unbiased`, as
 * in PyTorch; `wide` gives float32 for 16-bit floats. @internal
 */
export function varMeanAs(
  op: string,
  input: Tensor,
  dim: Dims | boolean,
  unbiased: boolean | null,
  keepdim: boolean,
  { correction = (typeof dim === 'boolean' ? dim : unbiased) === false ? 0 : 1 }: CorrectionOption,
  wide = false,
): [Tensor, Tensor] {
  requireTensor(input, op);
  checkFlag(op, 'unbiased', unbiased, { orNull: true });
  checkFlag(op, 'keepdim', keepdim);
  requireFloating(input, op);
  const dims = wrapDims(typeof dim === 'boolean' ? null : dim, input.sizes.length, op);
  return dispatch(varMeanOp, [input], { dims, keepdim, correction, wide }) as [Tensor, Tensor];
}

/**
 * Variance over dims; NaN over too few elements. Floating dtypes, kept. Gradient: yes. @throws
 * DtypeError for others @see PyTorch `torch.var`
 */
const variance = defineFunction(
  'var(input, /, dim, unbiased, keepdim, *, correction)',
  (
    input: Tensor,
    dim: Dims | boolean = null,
    unbiased: boolean | null = null,
    keepdim = false,
    options: CorrectionOption = {},
  ): Tensor => varMeanAs('var', input, dim, unbiased, keepdim, options)[0],
);

export { variance as var };

/**
 * Standard deviation over dims: the root of {@link variance | var}, which of 16-bit floats is
 * float32. Floating dtypes, kept. Gradient: yes, 0 where all are equal. @throws DtypeError for
 * others @see PyTorch `torch.std`
 */
export const std = defineFunction(
  'std(input, /, dim, unbiased, keepdim, *, correction)',
  (
    input: Tensor,
    dim: Dims | boolean = null,
    unbiased: boolean | null = null,
    keepdim = false,
    options: CorrectionOption = {},
  ): Tensor =>
    deviation(varMeanAs('std', input, dim, unbiased, keepdim, options, true)[0]).to(input.dtype),
);

/** The root of a variance. Its slope is infinite at 0; the gradient there is 0. @internal */
export function deviation(variance: Tensor): Tensor {
  if (!variance.requiresGrad) return variance.sqrt();
  const squared = reduced(variance);
  const constant = squared.eq(0);
  return where(constant, 0, where(constant, 1, squared).sqrt());
}

addMethod('var', methodOf(variance));
addMethod('std', methodOf(std));

declare module '../core/tensor.js' {
  interface Tensor {
    /** Variance over dims; the same as {@link variance | var}. */ var: MethodOf<typeof variance>;
    /** Standard deviation over dims; the same as {@link std}. */ std: MethodOf<typeof std>;
  }
}
