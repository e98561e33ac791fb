/**
 * A residual connection and the RMS norm behind it in one pass: what a transformer block begins
 * with.
 */

import { autocastOperands } from '../core/autocast.js';
import { decomposed } from '../core/decompose.js';
import { dispatch } from '../core/dispatch.js';
import { float64, promoteTypes } from '../core/dtype.js';
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
  isAbsent,
  type NormParams,
  optional,
  outputMeta,
  rmsNormBackward,
  rmsNormOp,
  statisticsMeta,
} from './norm.js';
import { requireTensor } from './operand.js';
import { reshapeIfNeeded } from './reshape-if-needed.js';
import { sampleTensor } from './samples.js';
import { normalizationBackwardRule, normalizationRule } from './sharding/normalization.js';

/**
 * Inputs: gradient of the norm, the sum, rstd, the gradient of the sum or an immediate, the weight.
 */
const addRmsNormBackward: Op<NormParams> = defineOp<NormParams>({
  name: 'addRmsNormBackward',
  doc: 'Gradients of addRmsNorm: of either summand, and of the weight.',
  sharding: normalizationBackwardRule(2, [0, 3]),
  meta: ([, sum], { width }) => {
    const h = sum as Tensor;
    return [outputMeta(h), { shape: [width], strides: null, dtype: h.dtype, device: h.device }];
  },
  lower: (command, [g, sum, rstd, more, weight], outputs, { width }) => {
    const { sizes, strides } = flatten(sum as Tensor, width);
    command.view(g as Tensor, sizes, strides);
    command.view(sum as Tensor, sizes, strides);
    command.tensor(rstd as Tensor);
    command.view(weight as Tensor, [width], [1]);
    command.view(more as Tensor, sizes, strides);
    command.outputView(outputs[0] as Tensor, sizes, strides);
    command.output(outputs[1] as Tensor);
  },
  vjp: 'not-differentiable',
  decompose: ([g, sum, rstd, more, weight], params) => {
    const [gx, gw] = decomposed(rmsNormBackward, [g, sum, rstd, weight] as Tensor[], {
      ...params,
      needs: [true, true],
    }) as [Tensor, Tensor];
    return [isAbsent(more as Tensor) ? gx : gx.add(more as Tensor), gw];
  },
  samples: () =>
    addRmsNormOp.samples().flatMap(({ inputs: [x, residual, weight], params }) => {
      const [y, sum, rstd] = dispatch(addRmsNormOp, [x, residual, weight] as Tensor[], params) as [
        Tensor,
        Tensor,
        Tensor,
      ];
      const g = sampleTensor(y.shape, { seed: 9 });
      return [sampleTensor(y.shape, { seed: 8 }), optional(null, y)].map((more) => ({
        inputs: [g, sum, rstd, more, weight as Tensor],
        params,
      }));
    }),
});

const addRmsNormOp: Op<NormParams> = defineOp<NormParams>({
  name: 'addRmsNorm',
  autocast: 'float32',
  differentiable: [0, 1],
  doc: 'Each row of a sum over its root mean square, times weight; and the sum.',
  sharding: normalizationRule(3, [0, 1]),
  kernelParams: ['eps'],
  meta: ([x], params) => [
    outputMeta(x as Tensor),
    outputMeta(x as Tensor),
    statisticsMeta(x as Tensor, params),
  ],
  lower: (command, [x, residual, weight], outputs, { width, eps }) => {
    const { sizes, strides } = flatten(x as Tensor, width);
    command.view(x as Tensor, sizes, strides);
    command.view(residual as Tensor, sizes, strides);
    command.view(weight as Tensor, [width], [1]);
    command.outputView(outputs[0] as Tensor, sizes, strides);
    command.outputView(outputs[1] as Tensor, sizes, strides);
    command.output(outputs[2] as Tensor);
    command.param(eps);
  },
  saves: { inputs: [2], outputs: [1, 2] },
  vjp: (ctx, g, more) => {
    if (g === null) return [more as Tensor, more as Tensor, null];
    const sum = ctx.output(1);
    const given = [
      g.contiguous(),
      sum,
      ctx.output(2),
      more === null ? optional(null, sum) : (more as Tensor).contiguous(),
      ctx.input(2),
    ];
    const [gx, gw] = dispatch(addRmsNormBackward, given, ctx.params) as [Tensor, Tensor];
    return [gx, gx, ctx.needs(2) ? reshapeIfNeeded(gw, ctx.inputShape(2)) : null];
  },
  decompose: ([x, residual, weight], params) => {
    const sum = (x as Tensor).add(residual as Tensor);
    const [y, rstd] = decomposed(rmsNormOp, [sum, weight as Tensor], params) as [Tensor, Tensor];
    return [y, sum, rstd];
  },
  samples: () => [
    {
      inputs: [
        sampleTensor([3, 5]),
        sampleTensor([3, 5], { seed: 4 }),
        sampleTensor([5], { seed: 2 }),
      ],
      params: { width: 5, eps: 1e-5 },
    },
    {
      inputs: ((x) => [x, sampleTensor([2, 4], { seed: 4 }), optional(null, x)])(
        sampleTensor([2, 4]),
      ),
      params: { width: 4, eps: 1e-5 },
    },
  ],
});

/**
 * RMS normalisation of `input + residual`, and that sum, from one read of both: `[rmsNorm(sum,
 * ...), sum]`. The sum is rounded to its dtype before it is normalised, so the values are those of
 * the two ops. Backward adds what comes from both results in one pass too.
 *
 * Shapes: `input` and `residual` alike, `[..., *normalizedShape]`; so are both results. Dtypes,
 * weight and eps as {@link rmsNorm}; summands of two floating dtypes are promoted. Gradient: input,
 * residual, weight.
 *
 * @throws ShapeError unless `input` and `residual` have one shape; ShapeError, DtypeError,
 * ArgumentError as {@link rmsNorm}
 * @example const [normal, stream] = addRmsNorm(attended, stream0, [width], weight); // next block:
 * addRmsNorm(mlp(normal), stream, ...)
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
    if (!sameShape(input.shape, residual.shape)) {
      throw new ShapeError(
        `addRmsNorm: expected a residual in the shape of the input, ${formatShape(input.shape)}, got ${formatShape(residual.shape)}`,
        {
          op: 'addRmsNorm',
          shapes: [input.shape, residual.shape],
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
