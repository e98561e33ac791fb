/** Layer normalisation and RMS normalisation over the last dims. */

import { autocastOperands } from '../core/autocast.js';
import { dispatch } from '../core/dispatch.js';
import { type DType, float32, float64 } from '../core/dtype.js';
import { DtypeError, ShapeError } from '../core/errors.js';
import { defineOp, type Op } from '../core/op.js';
import { checkNumber } from '../core/options.js';
import { checkSizes, formatShape, numelOf, type Shape, sameShape } from '../core/shape.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import { type Tensor, wrapNumber } from '../core/tensor.js';
import { addMethod } from './method.js';
import { requireFloating, requireTensor } from './operand.js';
import { reshapeIfNeeded } from './reshape-if-needed.js';
import { sampleTensor } from './samples.js';
import {
  normalizationBackwardRule,
  normalizationRule,
  outerDims,
} from './sharding/normalization.js';
import { varMean } from './variance.js';

export interface NormParams {
  /** Elements of the normalised dims. */
  width: number;
  eps: number;
}

/** An optional operand that is not there: an immediate. */
export function optional(t: Tensor | null, like: Tensor): Tensor {
  return t ?? wrapNumber(0, like.dtype, like.device);
}

export const isAbsent = (t: Tensor): boolean => t.storage === null;
const statisticsDtype = (dtype: DType): DType => (dtype === float64 ? float64 : float32);

/** The dims that are not normalised, so that they can be cut as the input is. */
function statisticsShape(input: Tensor, { width }: NormParams): Shape {
  return width === 0 ? [0] : input.shape.slice(0, outerDims(input.shape, width));
}

export function statisticsMeta(input: Tensor, params: NormParams) {
  return {
    shape: statisticsShape(input, params),
    strides: null,
    dtype: statisticsDtype(input.dtype),
    device: input.device,
  };
}

export const outputMeta = (input: Tensor) => ({
  shape: input.shape,
  strides: null,
  dtype: input.dtype,
  device: input.device,
});

export function flatten(t: Tensor, width: number): { sizes: number[]; strides: number[] } {
  return { sizes: [width === 0 ? 0 : t.numel() / width, width], strides: [width, 1] };
}

/** Its rows as a matrix; -1 for their number would be any number where rows have no elements. */
export function rowsOf(t: Tensor, width: number): Tensor {
  return reshapeIfNeeded(t, flatten(t, width).sizes);
}

export interface BackwardParams extends NormParams {
  needs: readonly boolean[];
}

const layerNormBackward: Op<BackwardParams> = defineOp<BackwardParams>({
  name: 'layerNormBackward',
  doc: 'Gradients of layerNorm: of the input, the weight and the bias.',
  sharding: normalizationBackwardRule(3),
  meta: ([, x], { width }) => {
    const input = x as Tensor;
    const affine = { shape: [width], strides: null, dtype: input.dtype, device: input.device };
    return [outputMeta(input), affine, affine];
  },
  lower: (command, [g, x, mean, rstd, weight], outputs, params) => {
    const input = x as Tensor;
    const { sizes, strides } = flatten(input, params.width);
    command.view(g as Tensor, sizes, strides);
    command.view(input, sizes, strides);
    for (const t of [mean, rstd, weight] as Tensor[]) command.tensor(t);
    command.outputView(outputs[0] as Tensor, sizes, strides);
    command.output(outputs[1] as Tensor);
    command.output(outputs[2] as Tensor);
  },
  vjp: 'not-differentiable',
  decompose: ([g, x, , , weight], params) => {
    const [dy, input] = [rowsOf(g as Tensor, params.width), rowsOf(x as Tensor, params.width)];
    const [variance, mean] = varMean(input, 1, { correction: 0, keepdim: true });
    const rstd = variance.add(params.eps).rsqrt();
    const normal = input.sub(mean).mul(rstd);
    const scaled = isAbsent(weight as Tensor)
      ? dy
      : dy.mul(reshapeIfNeeded(weight as Tensor, [-1]));
    const inner = scaled
      .sub(scaled.mean(1, { keepdim: true }))
      .sub(normal.mul(scaled.mul(normal).mean(1, { keepdim: true })));
    return [
      reshapeIfNeeded(inner.mul(rstd), (x as Tensor).shape),
      dy.mul(normal).sum(0),
      dy.sum(0),
    ];
  },
  samples: () =>
    layerNormOp.samples().map(({ inputs: [x, weight, bias], params }) => {
      const [out, mean, rstd] = dispatch(layerNormOp, [x, weight, bias] as Tensor[], params) as [
        Tensor,
        Tensor,
        Tensor,
      ];
      return {
        inputs: [sampleTensor(out.shape, { seed: 9 }), x as Tensor, mean, rstd, weight as Tensor],
        params: { ...params, needs: [true, true, true] },
      };
    }),
});

const layerNormOp: Op<NormParams> = defineOp<NormParams>({
  name: 'layerNorm',
  autocast: 'float32',
  differentiable: [0],
  doc: 'Each row minus its mean, over its standard deviation, times weight plus bias.',
  sharding: normalizationRule(3),
  kernelParams: ['eps'],
  meta: ([x], params) => {
    const input = x as Tensor;
    return [outputMeta(input), statisticsMeta(input, params), statisticsMeta(input, params)];
  },
  lower: (command, [x, weight, bias], outputs, { width, eps }) => {
    const input = x as Tensor;
    const { sizes, strides } = flatten(input, width);
    command.view(input, sizes, strides);
    command.view(weight as Tensor, [width], [1]);
    command.view(bias as Tensor, [width], [1]);
    command.outputView(outputs[0] as Tensor, sizes, strides);
    command.output(outputs[1] as Tensor);
    command.output(outputs[2] as Tensor);
    command.param(eps);
  },
  saves: { inputs: [0, 1], outputs: [1, 2] },
  vjp: (ctx, g) => {
    const [x, weight] = [ctx.input(0), ctx.input(1)];
    const needs = [0, 1, 2].map((i) => ctx.needs(i));
    const grads = dispatch(
      layerNormBackward,
      [g.contiguous(), x, ctx.output(1), ctx.output(2), weight],
      { ...ctx.params, needs },
    );
    const shaped = (i: number): Tensor | null =>
      ctx.needs(i) ? reshapeIfNeeded(grads[i] as Tensor, ctx.inputShape(i)) : null;
    return [grads[0] as Tensor, shaped(1), shaped(2)];
  },
  decompose: ([x, weight, bias], params) => {
    const { width, eps } = params;
    const rows = rowsOf(x as Tensor, width);
    const [variance, mean] = varMean(rows, 1, { correction: 0, keepdim: true });
    const rstd = variance.add(eps).rsqrt();
    const normal = rows.sub(mean).mul(rstd);
    const scaled = isAbsent(weight as Tensor)
      ? normal
      : normal.mul(reshapeIfNeeded(weight as Tensor, [-1]));
    const shifted = isAbsent(bias as Tensor)
      ? scaled
      : scaled.add(reshapeIfNeeded(bias as Tensor, [-1]));
    const outer = statisticsShape(x as Tensor, params);
    return [
      reshapeIfNeeded(shifted, (x as Tensor).shape),
      reshapeIfNeeded(mean, outer),
      reshapeIfNeeded(rstd, outer),
    ];
  },
  samples: () => [
    {
      inputs: [
        sampleTensor([3, 5]),
        sampleTensor([5], { seed: 2 }),
        sampleTensor([5], { seed: 3 }),
      ],
      params: { width: 5, eps: 1e-5 },
    },
    {
      inputs: [
        sampleTensor([2, 3, 7]),
        sampleTensor([7], { seed: 2 }),
        sampleTensor([7], { seed: 3 }),
      ],
      params: { width: 7, eps: 1e-3 },
    },
    {
      inputs: ((x) => [x, optional(null, x), optional(null, x)])(sampleTensor([2, 4])),
      params: { width: 4, eps: 1e-5 },
    },
  ],
});

export const rmsNormBackward: Op<BackwardParams> = defineOp<BackwardParams>({
  name: 'rmsNormBackward',
  doc: 'Gradients of rmsNorm: of the input and the weight.',
  sharding: normalizationBackwardRule(2),
  meta: ([, x], { width }) => {
    const input = x as Tensor;
    return [
      outputMeta(input),
      { shape: [width], strides: null, dtype: input.dtype, device: input.device },
    ];
  },
  lower: (command, [g, x, rstd, weight], outputs, { width }) => {
    const { sizes, strides } = flatten(x as Tensor, width);
    command.view(g as Tensor, sizes, strides);
    command.view(x as Tensor, sizes, strides);
    command.tensor(rstd as Tensor);
    command.view(weight as Tensor, [width], [1]);
    command.outputView(outputs[0] as Tensor, sizes, strides);
    command.output(outputs[1] as Tensor);
  },
  vjp: 'not-differentiable',
  decompose: ([g, x, , weight], { width, eps }) => {
    const [dy, input] = [rowsOf(g as Tensor, width), rowsOf(x as Tensor, width)];
    const rstd = input.square().mean(1, { keepdim: true }).add(eps).rsqrt();
    const normal = input.mul(rstd);
    const scaled = isAbsent(weight as Tensor)
      ? dy
      : dy.mul(reshapeIfNeeded(weight as Tensor, [-1]));
    const inner = scaled.sub(normal.mul(scaled.mul(normal).mean(1, { keepdim: true })));
    return [reshapeIfNeeded(inner.mul(rstd), (x as Tensor).shape), dy.mul(normal).sum(0)];
  },
  samples: () =>
    rmsNormOp.samples().map(({ inputs: [x, weight], params }) => {
      const [out, rstd] = dispatch(rmsNormOp, [x, weight] as Tensor[], params) as [Tensor, Tensor];
      return {
        inputs: [sampleTensor(out.shape, { seed: 9 }), x as Tensor, rstd, weight as Tensor],
        params: { ...params, needs: [true, true] },
      };
    }),
});

export const rmsNormOp: Op<NormParams> = defineOp<NormParams>({
  name: 'rmsNorm',
  autocast: 'float32',
  differentiable: [0],
  doc: 'Each row over its root mean square, times weight.',
  sharding: normalizationRule(2),
  kernelParams: ['eps'],
  meta: ([x], params) => [outputMeta(x as Tensor), statisticsMeta(x as Tensor, params)],
  lower: (command, [x, weight], outputs, { width, eps }) => {
    const { sizes, strides } = flatten(x as Tensor, width);
    command.view(x as Tensor, sizes, strides);
    command.view(weight as Tensor, [width], [1]);
    command.outputView(outputs[0] as Tensor, sizes, strides);
    command.output(outputs[1] as Tensor);
    command.param(eps);
  },
  saves: { inputs: [0, 1], outputs: [1] },
  vjp: (ctx, g) => {
    const needs = [0, 1].map((i) => ctx.needs(i));
    const grads = dispatch(
      rmsNormBackward,
      [g.contiguous(), ctx.input(0), ctx.output(1), ctx.input(1)],
      { ...ctx.params, needs },
    );
    return [
      grads[0] as Tensor,
      ctx.needs(1) ? reshapeIfNeeded(grads[1] as Tensor, ctx.inputShape(1)) : null,
    ];
  },
  decompose: ([x, weight], params) => {
    const { width, eps } = params;
    const rows = rowsOf(x as Tensor, width);
    const rstd = rows.square().mean(1, { keepdim: true }).add(eps).rsqrt();
    const normal = rows.mul(rstd);
    const scaled = isAbsent(weight as Tensor)
      ? normal
      : normal.mul(reshapeIfNeeded(weight as Tensor, [-1]));
    return [
      reshapeIfNeeded(scaled, (x as Tensor).shape),
      reshapeIfNeeded(rstd, statisticsShape(x as Tensor, params)),
    ];
  },
  samples: () => [
    {
      inputs: [sampleTensor([3, 5]), sampleTensor([5], { seed: 2 })],
      params: { width: 5, eps: 1e-5 },
    },
    {
      inputs: ((x) => [x, optional(null, x)])(sampleTensor([2, 4])),
      params: { width: 4, eps: 1e-5 },
    },
  ],
});

export function checkNormalised(
  [first, ...weights]: readonly Tensor[],
  normalizedShape: Shape,
  op: string,
): void {
  const input = first as Tensor;
  requireFloating(input, op);
  const tail = input.shape.slice(input.shape.length - normalizedShape.length);
  if (normalizedShape.length === 0 || !sameShape(tail, normalizedShape)) {
    throw new ShapeError(
      `${op}: the last dims of the input, ${formatShape(input.shape)}, must be the normalised shape ${formatShape(normalizedShape)}`,
      {
        op,
        shape: input.shape,
        normalizedShape,
      },
    );
  }
  for (const w of weights) {
    if (isAbsent(w)) continue;
    if (!sameShape(w.shape, normalizedShape))
      throw new ShapeError(
        `${op}: weight and bias must have the normalised shape ${formatShape(normalizedShape)}, got ${formatShape(w.shape)}`,
        { op },
      );
    if (w.dtype !== input.dtype)
      throw new DtypeError(
        `${op}: weight and bias must have the input's dtype ${input.dtype.name}, got ${w.dtype.name}`,
        { op },
      );
  }
}

/**
 * Layer normalisation over the last dims: (x - mean) / sqrt(variance + eps), times weight plus bias
 * where given; eps is 1e-5 by default.
 *
 * Shapes: input `[..., *normalizedShape]`, kept; weight and bias `normalizedShape`. Dtypes: equal
 * floating types, kept; statistics are float32 for low precision. Gradient: input, weight, bias.
 *
 * @throws ShapeError unless the last dims, the weight and the bias have the normalised shape, of
 * one dim or more; DtypeError for integers, and for weights of another dtype; ArgumentError unless
 * `input` is a tensor
 * @see PyTorch `torch.nn.functional.layer_norm`; Ba et al., arXiv:1607.06450
 */
export const layerNorm = defineFunction(
  'layerNorm(input, /, normalizedShape, weight, bias, eps)',
  (
    input: Tensor,
    normalizedShape: Shape,
    weight: Tensor | null = null,
    bias: Tensor | null = null,
    eps = 1e-5,
  ): Tensor => {
    requireTensor(input, 'layerNorm');
    checkSizes(normalizedShape, 'layerNorm');
    if (weight !== null) requireTensor(weight, 'layerNorm', 'weight');
    if (bias !== null) requireTensor(bias, 'layerNorm', 'bias');
    checkNumber('layerNorm', 'eps', eps);
    const operands = autocastOperands('float32', [
      input,
      optional(weight, input),
      optional(bias, input),
    ]);
    checkNormalised(operands, normalizedShape, 'layerNorm');
    const dense = operands.map((t) => (isAbsent(t) ? t : t.contiguous()));
    return dispatch(layerNormOp, dense, { width: numelOf(normalizedShape), eps })[0] as Tensor;
  },
);

/**
 * Smallest step above 1 of the types that the kernel computes in: the default eps, as in PyTorch.
 */
export const epsilon = { float32: 2 ** -23, float64: 2 ** -52 };

/**
 * RMS normalisation over the last dims: x / sqrt(mean of x^2 + eps), times weight where given.
 * Without `eps` it is the machine epsilon of float32, or of float64 for such an input. Shapes and
 * dtypes as {@link layerNorm}. Gradient: input, weight.
 *
 * @throws ShapeError, DtypeError, ArgumentError as {@link layerNorm}
 * @see PyTorch `torch.nn.functional.rms_norm`; Zhang and Sennrich, arXiv:1910.07467
 */
export const rmsNorm = defineFunction(
  'rmsNorm(input, /, normalizedShape, weight, eps)',
  (
    input: Tensor,
    normalizedShape: Shape,
    weight: Tensor | null = null,
    eps: number | null = null,
  ): Tensor => {
    requireTensor(input, 'rmsNorm');
    checkSizes(normalizedShape, 'rmsNorm');
    if (weight !== null) requireTensor(weight, 'rmsNorm', 'weight');
    if (eps !== null) checkNumber('rmsNorm', 'eps', eps);
    const operands = autocastOperands('float32', [input, optional(weight, input)]);
    checkNormalised(operands, normalizedShape, 'rmsNorm');
    const dense = operands.map((t) => (isAbsent(t) ? t : t.contiguous()));
    const params = {
      width: numelOf(normalizedShape),
      eps: eps ?? (input.dtype === float64 ? epsilon.float64 : epsilon.float32),
    };
    return dispatch(rmsNormOp, dense, params)[0] as Tensor;
  },
);

addMethod('layerNorm', methodOf(layerNorm));
addMethod('rmsNorm', methodOf(rmsNorm));

declare module '../core/tensor.js' {
  interface Tensor {
    /** Layer normalisation over the last dims. The same as {@link layerNorm}. */
    layerNorm: MethodOf<typeof layerNorm>;
    /** RMS normalisation over the last dims. The same as {@link rmsNorm}. */
    rmsNorm: MethodOf<typeof rmsNorm>;
  }
}
