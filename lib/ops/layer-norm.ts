/** Layer normalisation over the last dims. */

import { autocastOperands } from '../core/autocast.js';
import { decomposed } from '../core/decompose.js';
import { dispatch, dispatchOne } from '../core/dispatch.js';
import { bfloat16 } from '../core/dtype.js';
import { defineOp, type Op } from '../core/op.js';
import { checkNumber } from '../core/options.js';
import { checkSizes, numelOf, type Shape } from '../core/shape.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { addMethod } from './method.js';
import {
  arrived,
  asRow,
  type BackwardParams,
  backwardParams,
  checkNormalised,
  flatten,
  gradientsOf,
  isAbsent,
  metasWithLow,
  type NormParams,
  normParams,
  optional,
  outputMeta,
  plus,
  resultsWithLow,
  rowsOf,
  statisticsMeta,
  statisticsShape,
  timesWeight,
  writeRows,
} from './norm-operands.js';
import { requireTensor } from './operand.js';
import { reshapeIfNeeded } from './reshape-if-needed.js';
import { sampleTensor } from './samples.js';
import { normalizationBackwardRule, normalizationRule } from './sharding/normalization.js';
import { varMean } from './variance.js';

const layerNormBackward: Op<BackwardParams> = defineOp({
  name: 'layerNormBackward',
  doc: 'Gradients of layerNorm: of the input, plus a gradient, of the weight and the bias.',
  inputs: ['g', 'x', 'mean', 'rstd', 'more?', 'weight?'],
  outputs: ['gx', 'gweight', 'gbias', 'low?'],
  writesLow: true,
  operands:
    '(grad: [r, c], x: T[r, c], mean: numel(r), rstd: numel(r), weight?: numel(c), ' +
    'more?: T[r, c]) -> (gradX?: [r, c], gradWeight?: numel(c), gradBias?: numel(c), ' +
    'low?: float [r, c])',
  params: backwardParams,
  sharding: normalizationBackwardRule<BackwardParams>(3, [0, 4]),
  meta: ([, x], params) => {
    const affine = { ...outputMeta(x), shape: [params.width] };
    return metasWithLow([outputMeta(x), affine, affine], params);
  },
  lower: (command, [g, x, mean, rstd, more, weight], [gx, gweight, gbias, low], { width }) => {
    const { sizes, strides } = flatten(x, width);
    command.view(g, sizes, strides);
    command.view(x, sizes, strides);
    command.tensor(mean);
    command.tensor(rstd);
    command.tensor(weight);
    command.view(more, sizes, strides);
    command.outputView(gx, sizes, strides);
    command.output(gweight);
    command.output(gbias);
    writeRows(command, low, width);
  },
  vjp: 'not-differentiable',
  decompose: ([g, x, , , more, weight], params) => {
    const { width, eps } = params;
    const [dy, rows] = [rowsOf(g, width), rowsOf(x, width)];
    const [variance, mean] = varMean(rows, 1, { correction: 0, keepdim: true });
    const rstd = variance.add(eps).rsqrt();
    const normal = rows.sub(mean).mul(rstd);
    const scaled = timesWeight(dy, weight);
    const inner = scaled
      .sub(scaled.mean(1, { keepdim: true }))
      .sub(normal.mul(scaled.mul(normal).mean(1, { keepdim: true })));
    const gx = reshapeIfNeeded(inner.mul(rstd), x.sizes);
    return resultsWithLow([plus(gx, more), dy.mul(normal).sum(0), dy.sum(0)], params);
  },
  samples: () =>
    layerNormOp.samples().flatMap(({ inputs: [x, weight, bias], params }) => {
      const outputs = dispatch(layerNormOp, [x, weight, bias], params);
      const [, mean, rstd] = outputs as [Tensor, Tensor, Tensor];
      const g = sampleTensor(x.sizes, { seed: 9 });
      return [optional(null, x), sampleTensor(x.sizes, { seed: 8 })].map((more) => ({
        inputs: [g, x, mean, rstd, more, weight] as const,
        params,
      }));
    }),
});

/** Of the kernel, which also takes a residual. */
const layerNormOperands =
  '(x: float T[r, c], weight?: numel(c), bias?: numel(c), residual?: float [r, c]) -> ' +
  '(y?: [r, c], mean: numel(r), rstd: numel(r), low?: float [r, c], sum?: T[r, c])';

export const layerNormOp: Op<NormParams, readonly [Tensor, Tensor, Tensor]> = defineOp({
  name: 'layerNorm',
  autocast: 'float32',
  writesLow: true,
  differentiable: [0],
  doc: 'Each row minus its mean, over its standard deviation, times weight plus bias.',
  inputs: ['x', 'weight?', 'bias?'],
  outputs: ['y', 'mean', 'rstd', 'low?'],
  operands: layerNormOperands,
  params: normParams,
  sharding: normalizationRule<NormParams>(3),
  meta: ([x], params) => {
    const statistics = statisticsMeta(x, params);
    return metasWithLow([outputMeta(x), statistics, statistics], params);
  },
  lower: (command, [x, weight, bias], [y, mean, rstd, low], { width, alone }) => {
    const { sizes, strides } = flatten(x, width);
    command.view(x, sizes, strides);
    command.view(weight, [width], [1]);
    command.view(bias, [width], [1]);
    command.immediate(0, x.dtype);
    writeRows(command, alone ? undefined : y, width);
    command.output(mean);
    command.output(rstd);
    writeRows(command, alone ? y : low, width);
    command.absentOutput();
  },
  saves: { inputs: [0, 1], outputs: [1, 2] },
  vjp: (ctx, g) => {
    const [x, weight] = [ctx.input(0), ctx.input(1)];
    const operands = [g.contiguous(), x, ctx.output(1), ctx.output(2), arrived(ctx, x), weight];
    const grads = gradientsOf(layerNormBackward, operands, ctx);
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
    const results = [
      reshapeIfNeeded(shifted, x.sizes),
      reshapeIfNeeded(mean, outer),
      reshapeIfNeeded(rstd, outer),
    ];
    return resultsWithLow(results, params);
  },
  samples: () => {
    const plain = sampleTensor([2, 4]);
    const weights = (n: number) =>
      [sampleTensor([n], { seed: 2 }), sampleTensor([n], { seed: 3 })] as const;
    return [
      { inputs: [sampleTensor([3, 5]), ...weights(5)], params: { width: 5, eps: 1e-5 } },
      { inputs: [sampleTensor([2, 3, 7]), ...weights(7)], params: { width: 7, eps: 1e-3 } },
      { inputs: [plain, ...weights(4)], params: { width: 4, eps: 1e-5, low: bfloat16 } },
      {
        inputs: [plain, optional(null, plain), optional(null, plain)],
        params: { width: 4, eps: 1e-5 },
      },
    ];
  },
  publicCall: ([x, weight, bias], { width, eps }) => layerNorm(x, [width], weight, bias, eps),
});

/** Appears only in lowered graphs, where lib/compile/fusion puts it. @internal */
export const addLayerNormOp: Op<NormParams, readonly [Tensor, Tensor, Tensor, Tensor]> = defineOp({
  name: 'addLayerNorm',
  kernel: 'layer_norm',
  doc:
    'Each row of a sum minus its mean, over its standard deviation, times weight plus bias; ' +
    'and the sum.',
  inputs: ['x', 'residual', 'weight?', 'bias?'],
  outputs: ['y', 'sum', 'mean', 'rstd', 'low?'],
  operands: layerNormOperands,
  params: normParams,
  sharding: normalizationRule<NormParams>(4, [0, 1]),
  meta: ([x], params) => {
    const statistics = statisticsMeta(x, params);
    return metasWithLow([outputMeta(x), outputMeta(x), statistics, statistics], params);
  },
  lower: (command, [x, residual, weight, bias], outputs, { width, alone }) => {
    const [y, sum, mean, rstd, low] = outputs;
    const { sizes, strides } = flatten(x, width);
    command.view(x, sizes, strides);
    command.view(weight, [width], [1]);
    command.view(bias, [width], [1]);
    command.view(residual, sizes, strides);
    writeRows(command, alone ? undefined : y, width);
    command.output(mean as Tensor);
    command.output(rstd as Tensor);
    writeRows(command, alone ? y : low, width);
    writeRows(command, sum, width);
  },
  vjp: 'not-differentiable',
  decompose: ([x, residual, weight, bias], params) => {
    const sum = x.add(residual);
    const results = decomposed(layerNormOp, [sum, weight, bias], params);
    const [y, ...others] = results as [Tensor, Tensor, Tensor];
    return [y, sum, ...others];
  },
  samples: () => {
    const plain = sampleTensor([2, 4]);
    const residual = sampleTensor([2, 4], { seed: 4 });
    return [
      {
        inputs: [plain, residual, sampleTensor([4], { seed: 2 }), sampleTensor([4], { seed: 3 })],
        params: { width: 4, eps: 1e-5 },
      },
      {
        inputs: [plain, residual, optional(null, plain), optional(null, plain)],
        params: { width: 4, eps: 1e-5, low: bfloat16 },
      },
    ];
  },
});

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

addMethod('layerNorm', methodOf(layerNorm));

declare module '../core/tensor.js' {
  interface Tensor {
    /** Layer normalisation over the last dims. The same as {@link layerNorm}. */
    layerNorm: MethodOf<typeof layerNorm>;
  }
}
