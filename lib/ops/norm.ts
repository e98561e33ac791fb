/** Layer normalization and RMS normalization over the last dims. */

import { autocastOperands } from '../core/autocast.js';
import { dispatch, dispatchOne } from '../core/dispatch.js';
import { type DType, float32, float64 } from '../core/dtype.js';
import { DtypeError, ShapeError } from '../core/errors.js';
import { defineOp, type Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
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

export const normParams = {
  /** The number of elements in the normalised dims. */
  width: param.value<number>(),
  eps: param.kernel(),
};
export type NormParams = ParamsOf<typeof normParams>;

/** An absent optional operand, as an immediate. */
export function optional(t: Tensor | null, like: Tensor): Tensor {
  return t ?? wrapNumber(0, like.dtype, like.device);
}

export const isAbsent = (t: Tensor): boolean => t.storage === null;
const statisticsDtype = (dtype: DType): DType => (dtype === float64 ? float64 : float32);

/** The shape without the normalised dims, so that statistics can be sharded like the input. */
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

/** Reshapes to rows. Computes their number, because -1 is ambiguous without elements. */
export function rowsOf(t: Tensor, width: number): Tensor {
  return reshapeIfNeeded(t, flatten(t, width).sizes);
}

/** The decomposition needs eps; the kernel reads the saved statistics instead. */
const backwardParams = {
  width: param.value<number>(),
  eps: param.value<number>(),
  needs: param.value<readonly boolean[]>(),
};
export type BackwardParams = ParamsOf<typeof backwardParams>;

/** A weight or bias as a vector, whatever the shape of the normalised dims. */
const asRow = (t: Tensor): Tensor => reshapeIfNeeded(t, [-1]);
const timesWeight = (rows: Tensor, weight: Tensor): Tensor =>
  isAbsent(weight) ? rows : rows.mul(asRow(weight));

const layerNormBackward: Op<BackwardParams> = defineOp({
  name: 'layerNormBackward',
  doc: 'Gradients of layerNorm: of the input, the weight and the bias.',
  inputs: ['g', 'x', 'mean', 'rstd', 'weight?'],
  outputs: ['gx', 'gweight', 'gbias'],
  operands:
    '(grad: [r, c], x: [r, c], mean: numel(r), rstd: numel(r), weight?: numel(c))' +
    ' -> (gradX?: [r, c], gradWeight?: numel(c), gradBias?: numel(c))',
  params: backwardParams,
  sharding: normalizationBackwardRule<BackwardParams>(3),
  meta: ([, x], { width }) => {
    const affine = { shape: [width], strides: null, dtype: x.dtype, device: x.device };
    return [outputMeta(x), affine, affine];
  },
  lower: (command, [g, x, mean, rstd, weight], [gx, gweight, gbias], { width }) => {
    const { sizes, strides } = flatten(x, width);
    command.view(g, sizes, strides);
    command.view(x, sizes, strides);
    command.tensor(mean);
    command.tensor(rstd);
    command.tensor(weight);
    command.outputView(gx, sizes, strides);
    command.output(gweight);
    command.output(gbias);
  },
  vjp: 'not-differentiable',
  decompose: ([g, x, , , weight], { width, eps }) => {
    const [dy, rows] = [rowsOf(g, width), rowsOf(x, width)];
    const [variance, mean] = varMean(rows, 1, { correction: 0, keepdim: true });
    const rstd = variance.add(eps).rsqrt();
    const normal = rows.sub(mean).mul(rstd);
    const scaled = timesWeight(dy, weight);
    const inner = scaled
      .sub(scaled.mean(1, { keepdim: true }))
      .sub(normal.mul(scaled.mul(normal).mean(1, { keepdim: true })));
    return [reshapeIfNeeded(inner.mul(rstd), x.shape), dy.mul(normal).sum(0), dy.sum(0)];
  },
  samples: () =>
    layerNormOp.samples().map(({ inputs: [x, weight, bias], params }) => {
      const outputs = dispatch(layerNormOp, [x, weight, bias], params);
      const [out, mean, rstd] = outputs as [Tensor, Tensor, Tensor];
      return {
        inputs: [sampleTensor(out.shape, { seed: 9 }), x, mean, rstd, weight] as const,
        params: { ...params, needs: [true, true, true] },
      };
    }),
});

const layerNormOp: Op<NormParams, readonly [Tensor, Tensor, Tensor]> = defineOp({
  name: 'layerNorm',
  autocast: 'float32',
  differentiable: [0],
  doc: 'Each row minus its mean, over its standard deviation, times weight plus bias.',
  inputs: ['x', 'weight?', 'bias?'],
  outputs: ['y', 'mean', 'rstd'],
  operands:
    '(x: float [r, c], weight?: numel(c), bias?: numel(c)) -> (y: [r, c], mean: numel(r), ' +
    'rstd: numel(r))',
  params: normParams,
  sharding: normalizationRule<NormParams>(3),
  meta: ([x], params) => [outputMeta(x), statisticsMeta(x, params), statisticsMeta(x, params)],
  lower: (command, [x, weight, bias], [y, mean, rstd], { width }) => {
    const { sizes, strides } = flatten(x, width);
    command.view(x, sizes, strides);
    command.view(weight, [width], [1]);
    command.view(bias, [width], [1]);
    command.outputView(y, sizes, strides);
    command.output(mean);
    command.output(rstd);
  },
  saves: { inputs: [0, 1], outputs: [1, 2] },
  vjp: (ctx, g) => {
    const [x, weight] = [ctx.input(0), ctx.input(1)];
    const needs = [0, 1, 2].map((i) => ctx.needs(i));
    const operands = [g.contiguous(), x, ctx.output(1), ctx.output(2), weight];
    const grads = dispatch(layerNormBackward, operands, { ...ctx.params, needs });
    const [gx, gweight, gbias] = grads as [Tensor, Tensor, Tensor];
    return [
      gx,
      ctx.needs(1) ? reshapeIfNeeded(gweight, ctx.inputShape(1)) : null,
      ctx.needs(2) ? reshapeIfNeeded(gbias, ctx.inputShape(2)) : null,
    ];
  },
  decompose: ([x, weight, bias], params) => {
    const rows = rowsOf(x, params.width);
    const [variance, mean] = varMean(rows, 1, { correction: 0, keepdim: true });
    const rstd = variance.add(params.eps).rsqrt();
    const scaled = timesWeight(rows.sub(mean).mul(rstd), weight);
    const shifted = isAbsent(bias) ? scaled : scaled.add(asRow(bias));
    const outer = statisticsShape(x, params);
    return [
      reshapeIfNeeded(shifted, x.shape),
      reshapeIfNeeded(mean, outer),
      reshapeIfNeeded(rstd, outer),
    ];
  },
  samples: () => {
    const plain = sampleTensor([2, 4]);
    const weights = (n: number) =>
      [sampleTensor([n], { seed: 2 }), sampleTensor([n], { seed: 3 })] as const;
    return [
      { inputs: [sampleTensor([3, 5]), ...weights(5)], params: { width: 5, eps: 1e-5 } },
      { inputs: [sampleTensor([2, 3, 7]), ...weights(7)], params: { width: 7, eps: 1e-3 } },
      {
        inputs: [plain, optional(null, plain), optional(null, plain)],
        params: { width: 4, eps: 1e-5 },
      },
    ];
  },
  publicCall: ([x, weight, bias], { width, eps }) => layerNorm(x, [width], weight, bias, eps),
});

export const rmsNormBackward: Op<BackwardParams> = defineOp({
  name: 'rmsNormBackward',
  doc: 'Gradients of rmsNorm: of the input and the weight.',
  inputs: ['g', 'x', 'rstd', 'weight?'],
  outputs: ['gx', 'gweight'],
  operands:
    '(grad: [r, c], x: [r, c], rstd: numel(r), weight?: numel(c)) -> (gradX?: [r, c], ' +
    'gradWeight?: numel(c))',
  params: backwardParams,
  sharding: normalizationBackwardRule<BackwardParams>(2),
  meta: ([, x], { width }) => [
    outputMeta(x),
    { shape: [width], strides: null, dtype: x.dtype, device: x.device },
  ],
  lower: (command, [g, x, rstd, weight], [gx, gweight], { width }) => {
    const { sizes, strides } = flatten(x, width);
    command.view(g, sizes, strides);
    command.view(x, sizes, strides);
    command.tensor(rstd);
    command.view(weight, [width], [1]);
    command.outputView(gx, sizes, strides);
    command.output(gweight);
  },
  vjp: 'not-differentiable',
  decompose: ([g, x, , weight], { width, eps }) => {
    const [dy, rows] = [rowsOf(g, width), rowsOf(x, width)];
    const rstd = rows.square().mean(1, { keepdim: true }).add(eps).rsqrt();
    const normal = rows.mul(rstd);
    const scaled = timesWeight(dy, weight);
    const inner = scaled.sub(normal.mul(scaled.mul(normal).mean(1, { keepdim: true })));
    return [reshapeIfNeeded(inner.mul(rstd), x.shape), dy.mul(normal).sum(0)];
  },
  samples: () =>
    rmsNormOp.samples().map(({ inputs: [x, weight], params }) => {
      const [out, rstd] = dispatch(rmsNormOp, [x, weight], params) as [Tensor, Tensor];
      return {
        inputs: [sampleTensor(out.shape, { seed: 9 }), x, rstd, weight] as const,
        params: { ...params, needs: [true, true] },
      };
    }),
});

export const rmsNormOp: Op<NormParams, readonly [Tensor, Tensor]> = defineOp({
  name: 'rmsNorm',
  autocast: 'float32',
  differentiable: [0],
  doc: 'Each row over its root mean square, times weight.',
  inputs: ['x', 'weight?'],
  outputs: ['y', 'rstd'],
  operands: '(x: [r, c], weight?: numel(c)) -> (y: [r, c], rstd: numel(r))',
  params: normParams,
  sharding: normalizationRule<NormParams>(2),
  meta: ([x], params) => [outputMeta(x), statisticsMeta(x, params)],
  lower: (command, [x, weight], [y, rstd], { width }) => {
    const { sizes, strides } = flatten(x, width);
    command.view(x, sizes, strides);
    command.view(weight, [width], [1]);
    command.outputView(y, sizes, strides);
    command.output(rstd);
  },
  saves: { inputs: [0, 1], outputs: [1] },
  vjp: (ctx, g) => {
    const needs = [0, 1].map((i) => ctx.needs(i));
    const operands = [g.contiguous(), ctx.input(0), ctx.output(1), ctx.input(1)];
    const grads = dispatch(rmsNormBackward, operands, { ...ctx.params, needs });
    const [gx, gweight] = grads as [Tensor, Tensor];
    return [gx, ctx.needs(1) ? reshapeIfNeeded(gweight, ctx.inputShape(1)) : null];
  },
  decompose: ([x, weight], params) => {
    const rows = rowsOf(x, params.width);
    const rstd = rows.square().mean(1, { keepdim: true }).add(params.eps).rsqrt();
    const scaled = timesWeight(rows.mul(rstd), weight);
    const outer = statisticsShape(x, params);
    return [reshapeIfNeeded(scaled, x.shape), reshapeIfNeeded(rstd, outer)];
  },
  samples: () => {
    const plain = sampleTensor([2, 4]);
    return [
      {
        inputs: [sampleTensor([3, 5]), sampleTensor([5], { seed: 2 })],
        params: { width: 5, eps: 1e-5 },
      },
      { inputs: [plain, optional(null, plain)], params: { width: 4, eps: 1e-5 } },
    ];
  },
  publicCall: ([x, weight], { width, eps }) => rmsNorm(x, [width], weight, eps),
});

export function checkNormalised(
  [input, ...weights]: readonly [Tensor, ...Tensor[]],
  normalizedShape: Shape,
  op: string,
): void {
  requireFloating(input, op);
  const tail = input.shape.slice(input.shape.length - normalizedShape.length);
  if (normalizedShape.length === 0 || !sameShape(tail, normalizedShape)) {
    throw new ShapeError(
      `${op}: the last dims of the input, ${formatShape(input.shape)}, must be the normalised ` +
        `shape ${formatShape(normalizedShape)}`,
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
        `${op}: weight and bias must have the normalised shape ` +
          `${formatShape(normalizedShape)}, got ${formatShape(w.shape)}`,
        { op },
      );
    if (w.dtype !== input.dtype)
      throw new DtypeError(
        `${op}: weight and bias must have the input's dtype ${input.dtype.name}, ` +
          `got ${w.dtype.name}`,
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
    ] as const);
    checkNormalised(operands, normalizedShape, 'layerNorm');
    const dense = operands.map((t) => (isAbsent(t) ? t : t.contiguous()));
    return dispatchOne(layerNormOp, dense, { width: numelOf(normalizedShape), eps });
  },
);

/** The machine epsilon of the type that the kernel computes in: the default eps, as in PyTorch. */
export const epsilon = { float32: 2 ** -23, float64: 2 ** -52 };

/**
 * RMS normalisation over the last dims: x / sqrt(mean of x^2 + eps), times weight where given.
 * `eps` is the machine epsilon of float32 by default, or that of float64 for such an input. Shapes
 * and dtypes as {@link layerNorm}. Gradient: input, weight.
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
    const operands = autocastOperands('float32', [input, optional(weight, input)] as const);
    checkNormalised(operands, normalizedShape, 'rmsNorm');
    const dense = operands.map((t) => (isAbsent(t) ? t : t.contiguous()));
    const params = {
      width: numelOf(normalizedShape),
      eps: eps ?? (input.dtype === float64 ? epsilon.float64 : epsilon.float32),
    };
    return dispatchOne(rmsNormOp, dense, params);
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
