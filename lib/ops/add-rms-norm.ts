/** Adds a residual and applies RMS norm in one pass, as each block of a transformer does first. */

import { autocastOperands } from '../core/autocast.js';
import { decomposed } from '../core/decompose.js';
import { dispatch } from '../core/dispatch.js';
import { bfloat16, float64, promoteTypes } from '../core/dtype.js';
import { ShapeError } from '../core/errors.js';
import { defineOp, type Op } from '../core/op.js';
import { checkNumber } from '../core/options.js';
import { checkSizes, formatShape, numelOf, type Shape, sameShape } from '../core/shape.js';
import { defineFunction } from '../core/signature.js';
import { type Tensor, wrapNumber } from '../core/tensor.js';
import {
  checkNormalised,
  epsilon,
  flatten,
  gradientsOf,
  isAbsent,
  metasWithLow,
  type NormParams,
  normParams,
  optional,
  outputMeta,
  statisticsMeta,
  writeRows,
} from './norm-operands.js';
import { requireTensor } from './operand.js';
import { reshapeIfNeeded } from './reshape-if-needed.js';
import { rmsNormBackward, rmsNormOp } from './rms-norm.js';
import { sampleTensor } from './samples.js';
import { normalizationRule } from './sharding/normalization.js';

/** @internal */
export const addRmsNormOp: Op<NormParams, readonly [Tensor, Tensor, Tensor]> = defineOp({
  name: 'addRmsNorm',
  autocast: 'float32',
  writesLow: true,
  differentiable: [0, 1],
  doc: 'Each row of a sum over its root mean square, times weight; and the sum.',
  inputs: ['x', 'residual', 'weight?'],
  outputs: ['y', 'sum', 'rstd', 'low?'],
  operands:
    '(x: float T[r, c], residual: float [r, c], weight?: numel(c)) -> ' +
    '(y?: T[r, c], sum: T[r, c], ' +
    'rstd: numel(r), low?: float [r, c])',
  params: normParams,
  sharding: normalizationRule<NormParams>(3, [0, 1]),
  meta: ([x], params) =>
    metasWithLow([outputMeta(x), outputMeta(x), statisticsMeta(x, params)], params),
  lower: (command, [x, residual, weight], [y, sum, rstd, low], { width, alone }) => {
    const { sizes, strides } = flatten(x, width);
    command.view(x, sizes, strides);
    command.view(residual, sizes, strides);
    command.view(weight, [width], [1]);
    writeRows(command, alone ? undefined : y, width);
    command.outputView(sum, sizes, strides);
    command.output(rstd);
    writeRows(command, alone ? y : low, width);
  },
  saves: { inputs: [2], outputs: [1, 2] },
  vjp: (ctx, g: Tensor | null, gsum: Tensor | null) => {
    if (g === null) return [gsum, gsum, null];
    const sum = ctx.output(1);
    const operands = [
      g.contiguous(),
      sum,
      ctx.output(2),
      gsum === null ? optional(null, sum) : gsum.contiguous(),
      ctx.input(2),
    ];
    const [gx, gw] = gradientsOf(rmsNormBackward, operands, ctx) as [Tensor, Tensor];
    return [gx, gx, ctx.needs(2) ? reshapeIfNeeded(gw, ctx.inputShape(2)) : null];
  },
  decompose: ([x, residual, weight], params) => {
    const sum = x.add(residual);
    const [y, ...others] = decomposed(rmsNormOp, [sum, weight], params) as [Tensor, Tensor];
    return [y, sum, ...others];
  },
  samples: () => {
    const plain = sampleTensor([2, 4]);
    const residual = (shape: Shape) => sampleTensor(shape, { seed: 4 });
    return [
      {
        inputs: [sampleTensor([3, 5]), residual([3, 5]), sampleTensor([5], { seed: 2 })],
        params: { width: 5, eps: 1e-5 },
      },
      {
        inputs: [plain, residual([2, 4]), optional(null, plain)],
        params: { width: 4, eps: 1e-5 },
      },
      {
        inputs: [plain, residual([2, 4]), sampleTensor([4], { seed: 2 })],
        params: { width: 4, eps: 1e-5, low: bfloat16 },
      },
    ];
  },
  publicCall: ([x, residual, weight], { width, eps }) =>
    addRmsNorm(x, residual, [width], weight, eps),
});

/**
 * RMS normalisation of `input + residual`, and that sum, from one read of both: `[rmsNorm(sum,
 * ...), sum]`. The sum is rounded to its dtype before it is normalised, so the values are those of
 * the two ops. Backward adds the gradients from both results in one pass, too.
 *
 * Shapes: `input` and `residual` alike, `[..., *normalizedShape]`; so are both results. Dtypes,
 * weight and eps as {@link rmsNorm}; summands of two floating dtypes are promoted. Gradient: input,
 * residual, weight.
 *
 * @throws ShapeError unless `input` and `residual` have one shape; ShapeError, DtypeError,
 * ArgumentError as {@link rmsNorm}
 * @example
 * const [normal, stream] = addRmsNorm(ones([2, 4]), ones([2, 4]), [4], ones([4]));
 * stream; // [[2, 2, 2, 2], [2, 2, 2, 2]]
 * normal; // [[1, 1, 1, 1], [1, 1, 1, 1]]
 */
export const addRmsNorm = defineFunction(
  'addRmsNorm(input, /, residual, normalizedShape, weight, eps)',
  (
    input: Tensor,
    residual: Tensor,
    normalizedShape: Shape,
    weight: Tensor | null = null,
    eps: number | null = null,
  ): [Tensor, Tensor] => {
    requireTensor(input, 'addRmsNorm');
    requireTensor(residual, 'addRmsNorm', 'residual');
    checkSizes(normalizedShape, 'addRmsNorm');
    if (weight !== null) requireTensor(weight, 'addRmsNorm', 'weight');
    if (eps !== null) checkNumber('addRmsNorm', 'eps', eps);
    if (!sameShape(input.sizes, residual.sizes)) {
      throw new ShapeError(
        'addRmsNorm: expected a residual in the shape of the input, ' +
          `${formatShape(input.sizes)}, got ${formatShape(residual.sizes)}`,
        {
          op: 'addRmsNorm',
          shapes: [input.sizes, residual.sizes],
        },
      );
    }
    const [given, other, factor] = autocastOperands('float32', [
      input,
      residual,
      weight ?? wrapNumber(0, input.dtype, input.device),
    ] as const);
    const dtype = promoteTypes(given.dtype, other.dtype);
    const [x, r] = [given.to(dtype), other.to(dtype)];
    checkNormalised([x, factor], normalizedShape, 'addRmsNorm');
    const operands = [
      x.contiguous(),
      r.contiguous(),
      isAbsent(factor) ? factor : factor.contiguous(),
    ];
    const params = {
      width: numelOf(normalizedShape),
      eps: eps ?? (dtype === float64 ? epsilon.float64 : epsilon.float32),
    };
    const [y, sum] = dispatch(addRmsNormOp, operands, params) as [Tensor, Tensor, Tensor];
    return [y, sum];
  },
);
