/** RMS normalisation over the last dims. */

import { autocastOperands } from '../core/autocast.js';
import { dispatch, dispatchOne } from '../core/dispatch.js';
import { float16, float64 } from '../core/dtype.js';
import { defineOp, type Op } from '../core/op.js';
import { checkNumber } from '../core/options.js';
import { checkSizes, numelOf, type Shape } from '../core/shape.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { addMethod } from './method.js';
import {
  arrived,
  type BackwardParams,
  backwardParams,
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

export const rmsNormBackward: Op<BackwardParams> = defineOp({
  name: 'rmsNormBackward',
  doc: 'Gradients of rmsNorm: of the input, plus a gradient, and of the weight.',
  inputs: ['g', 'x', 'rstd', 'more?', 'weight?'],
  outputs: ['gx', 'gweight', 'low?'],
  writesLow: true,
  operands:
    '(grad: [r, c], x: T[r, c], rstd: numel(r), weight?: numel(c), more?: T[r, c]) -> ' +
    '(gradX?: [r, c], gradWeight?: numel(c), low?: float [r, c])',
  params: backwardParams,
  sharding: normalizationBackwardRule<BackwardParams>(2, [0, 3]),
  meta: ([, x], params) => {
    const affine = { ...outputMeta(x), shape: [params.width] };
    return metasWithLow([outputMeta(x), affine], params);
  },
  lower: (command, [g, x, rstd, more, weight], [gx, gweight, low], { width }) => {
    const { sizes, strides } = flatten(x, width);
    command.view(g, sizes, strides);
    command.view(x, sizes, strides);
    command.tensor(rstd);
    command.view(weight, [width], [1]);
    command.view(more, sizes, strides);
    command.outputView(gx, sizes, strides);
    command.output(gweight);
    writeRows(command, low, width);
  },
  vjp: 'not-differentiable',
  decompose: ([g, x, , more, weight], params) => {
    const { width, eps } = params;
    const [dy, rows] = [rowsOf(g, width), rowsOf(x, width)];
    const rstd = rows.square().mean(1, { keepdim: true }).add(eps).rsqrt();
    const normal = rows.mul(rstd);
    const scaled = timesWeight(dy, weight);
    const inner = scaled.sub(normal.mul(scaled.mul(normal).mean(1, { keepdim: true })));
    const gx = reshapeIfNeeded(inner.mul(rstd), x.sizes);
    return resultsWithLow([plus(gx, more), dy.mul(normal).sum(0)], params);
  },
  samples: () =>
    rmsNormOp.samples().flatMap(({ inputs: [x, weight], params }) => {
      const [, rstd] = dispatch(rmsNormOp, [x, weight], params) as [Tensor, Tensor];
      const g = sampleTensor(x.sizes, { seed: 9 });
      return [optional(null, x), sampleTensor(x.sizes, { seed: 8 })].map((more) => ({
        inputs: [g, x, rstd, more, weight] as const,
        params,
      }));
    }),
});

export const rmsNormOp: Op<NormParams, readonly [Tensor, Tensor]> = defineOp({
  name: 'rmsNorm',
  autocast: 'float32',
  writesLow: true,
  differentiable: [0],
  doc: 'Each row over its root mean square, times weight.',
  inputs: ['x', 'weight?'],
  outputs: ['y', 'rstd', 'low?'],
  operands: '(x: [r, c], weight?: numel(c)) -> (y?: [r, c], rstd: numel(r), low?: float [r, c])',
  params: normParams,
  sharding: normalizationRule<NormParams>(2),
  meta: ([x], params) => metasWithLow([outputMeta(x), statisticsMeta(x, params)], params),
  lower: (command, [x, weight], [y, rstd, low], { width, alone }) => {
    const { sizes, strides } = flatten(x, width);
    command.view(x, sizes, strides);
    command.view(weight, [width], [1]);
    writeRows(command, alone ? undefined : y, width);
    command.output(rstd);
    writeRows(command, alone ? y : low, width);
  },
  saves: { inputs: [0, 1], outputs: [1] },
  vjp: (ctx, g) => {
    const x = ctx.input(0);
    const operands = [g.contiguous(), x, ctx.output(1), arrived(ctx, x), ctx.input(1)];
    const [gx, gweight] = gradientsOf(rmsNormBackward, operands, ctx) as [Tensor, Tensor];
    return [gx, ctx.needs(1) ? reshapeIfNeeded(gweight, ctx.inputShape(1)) : null];
  },
  decompose: ([x, weight], params) => {
    const rows = rowsOf(x, params.width);
    const rstd = rows.square().mean(1, { keepdim: true }).add(params.eps).rsqrt();
    const scaled = timesWeight(rows.mul(rstd), weight);
    const outer = statisticsShape(x, params);
    const results = [reshapeIfNeeded(scaled, x.sizes), reshapeIfNeeded(rstd, outer)];
    return resultsWithLow(results, params);
  },
  samples: () => {
    const plain = sampleTensor([2, 4]);
    return [
      {
        inputs: [sampleTensor([3, 5]), sampleTensor([5], { seed: 2 })],
        params: { width: 5, eps: 1e-5 },
      },
      { inputs: [plain, sampleTensor([4])], params: { width: 4, eps: 1e-5, low: float16 } },
      { inputs: [plain, optional(null, plain)], params: { width: 4, eps: 1e-5 } },
    ];
  },
  publicCall: ([x, weight], { width, eps }) => rmsNorm(x, [width], weight, eps),
});

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

addMethod('rmsNorm', methodOf(rmsNorm));

declare module '../core/tensor.js' {
  interface Tensor {
    /** RMS normalisation over the last dims. The same as {@link rmsNorm}. */
    rmsNorm: MethodOf<typeof rmsNorm>;
  }
}
