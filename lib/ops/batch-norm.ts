/** Group and batch normalization, written in other ops. */

import { ArgumentError, ShapeError } from '../core/errors.js';
import { checkFlag, checkNumber, checkSizesOf } from '../core/options.js';
import { formatShape } from '../core/shape.js';
import { defineFunction } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { defineComposite } from './composite.js';
import { layerNorm } from './layer-norm.js';
import { requireFloating, requireTensor } from './operand.js';
import { reshapeIfNeeded } from './reshape-if-needed.js';
import { sampleTensor } from './samples.js';
import { varMean } from './variance.js';

/**
 * @throws ArgumentError unless it is null or a tensor. @throws ShapeError unless it has one element
 * for each channel
 */
function requireVector(t: Tensor | null, op: string, argument: string, input: Tensor): void {
  if (t === null) return;
  requireTensor(t, op, argument);
  if (input.ndim >= 2 && (t.ndim !== 1 || t.sizes[0] !== input.sizes[1]))
    throw new ShapeError(
      `${op}: expected ${argument} to have a number for each channel (dim 1) of shape ` +
        `${formatShape(input.sizes)}, got shape ${formatShape(t.sizes)}`,
      { op },
    );
}

/** Reshapes a vector with one element for each channel to the dims of the input. */
function perChannel(vector: Tensor, input: Tensor): Tensor {
  return vector.reshape(input.sizes.map((_, i) => (i === 1 ? -1 : 1)));
}

function affine(normal: Tensor, weight: Tensor | null, bias: Tensor | null): Tensor {
  const scaled = weight === null ? normal : normal.mul(perChannel(weight, normal));
  return bias === null ? scaled : scaled.add(perChannel(bias, normal));
}

/**
 * Normalisation of groups of channels, each by its own mean and variance (plus eps, 1e-5 by
 * default), times weight plus bias where given. Shapes: input `[N, C, ...]`, kept; weight and bias
 * `[C]`. Dtypes: floating, kept. Gradient: input, weight, bias.
 *
 * @throws ShapeError if the channels do not divide into groups, for fewer than two dims, and for
 * weights that do not fit; DtypeError for integers; ArgumentError unless `input` is a tensor
 * @see PyTorch `torch.nn.functional.group_norm`; Wu and He, arXiv:1803.08494
 */
export const groupNorm = defineComposite(
  'groupNorm',
  defineFunction(
    'groupNorm(input, /, numGroups, weight, bias, eps)',
    (
      input: Tensor,
      numGroups: number,
      weight: Tensor | null = null,
      bias: Tensor | null = null,
      eps = 1e-5,
    ): Tensor => {
      requireTensor(input, 'groupNorm');
      for (const [name, t] of Object.entries({ weight, bias }))
        requireVector(t, 'groupNorm', name, input);
      checkSizesOf('groupNorm', { numGroups }, 1);
      requireFloating(input, 'groupNorm');
      const [batch, channels] = input.sizes as [number, number];
      if (
        input.ndim < 2 ||
        !Number.isInteger(numGroups) ||
        numGroups < 1 ||
        channels % numGroups !== 0
      )
        throw new ShapeError(
          `groupNorm: the channels (dim 1) of shape ${formatShape(input.sizes)} do not divide ` +
            `into ${numGroups} groups`,
          { op: 'groupNorm', shape: input.sizes },
        );
      if (input.numel() === numGroups)
        throw new ShapeError(
          'groupNorm: expected more than one value for each group, got shape ' +
            `${formatShape(input.sizes)}`,
          { op: 'groupNorm', shape: input.sizes },
        );
      const width = batch * numGroups === 0 ? 0 : input.numel() / (batch * numGroups);
      const normal = layerNorm(
        reshapeIfNeeded(input, [batch, numGroups, width]),
        [width],
        null,
        null,
        eps,
      );
      return affine(reshapeIfNeeded(normal, input.sizes), weight, bias).to(input.dtype);
    },
  ),
  {
    method: false,
    samples: () => [
      [sampleTensor([2, 4, 3]), 2, sampleTensor([4], { seed: 2 }), sampleTensor([4], { seed: 3 })],
    ],
  },
);

/**
 * Normalises channels over the batch and the dims after them, by running statistics, or in
 * `training` (false) by those of the batch. In training, the running statistics move towards the
 * batch's by the share `momentum`; the running variance uses the unbiased one. Shapes: input `[N,
 * C, ...]`, kept; the others `[C]`. Dtypes: floating, promoted. Gradient: input, weight, bias.
 *
 * @throws ArgumentError if running statistics are needed but missing, if a batch in training has
 * one value per channel, or unless the input is a tensor; ShapeError for fewer than two dims, and
 * for vectors that do not fit; DtypeError for integers in training
 * @see PyTorch `torch.nn.functional.batch_norm`; Ioffe and Szegedy, arXiv:1502.03167
 */
export const batchNorm = defineComposite(
  'batchNorm',
  defineFunction(
    'batchNorm(input, /, runningMean, runningVar, weight, bias, training, momentum, eps)',
    (
      input: Tensor,
      runningMean: Tensor | null,
      runningVar: Tensor | null,
      weight: Tensor | null = null,
      bias: Tensor | null = null,
      training = false,
      momentum = 0.1,
      eps = 1e-5,
    ): Tensor => {
      requireTensor(input, 'batchNorm');
      checkFlag('batchNorm', 'training', training);
      for (const [name, t] of Object.entries({ runningMean, runningVar, weight, bias }))
        requireVector(t, 'batchNorm', name, input);
      checkNumber('batchNorm', 'eps', eps);
      if (input.ndim < 2)
        throw new ShapeError(
          `batchNorm: expected at least 2 dims, got shape ${formatShape(input.sizes)}`,
          { op: 'batchNorm', shape: input.sizes },
        );
      // In low precision squares overflow.
      const x = input.dtype.itemsize < 4 && input.dtype.isFloatingPoint ? input.float() : input;
      const [mean, variance] = training
        ? batchStatistics(x, runningMean, runningVar, momentum)
        : runningStatistics(x, runningMean, runningVar);
      return affine(x.sub(mean).mul(variance.add(eps).rsqrt()), weight, bias).to(input.dtype);
    },
  ),
  {
    method: false,
    samples: () => [
      [sampleTensor([3, 2]), null, null, { training: true }],
      [
        sampleTensor([2, 2, 3]),
        sampleTensor([2], { seed: 2 }),
        sampleTensor([2], { seed: 3, low: 0.5 }),
      ],
    ],
  },
);

function runningStatistics(
  x: Tensor,
  mean: Tensor | null,
  variance: Tensor | null,
): [Tensor, Tensor] {
  if (mean === null || variance === null)
    throw new ArgumentError('batchNorm: running statistics are needed outside of training', {
      op: 'batchNorm',
    });
  return [perChannel(mean.to(x.dtype), x), perChannel(variance.to(x.dtype), x)];
}

/** Computes mean and variance of each channel of the batch and updates the running statistics. */
function batchStatistics(
  x: Tensor,
  runningMean: Tensor | null,
  runningVar: Tensor | null,
  momentum: number,
): [Tensor, Tensor] {
  const dims = x.sizes.flatMap((_, i) => (i === 1 ? [] : [i]));
  const count = x.numel() / (x.sizes[1] as number);
  if (count <= 1)
    throw new ArgumentError(
      'batchNorm: expected more than one value for each channel in training, got shape ' +
        `${formatShape(x.sizes)}`,
      { op: 'batchNorm' },
    );
  const [variance, mean] = varMean(x, dims, { correction: 0, keepdim: true });
  runningMean?.lerp_(mean.detach().reshape(-1).to(runningMean.dtype), momentum);
  const unbiased = variance
    .detach()
    .reshape(-1)
    .mul(count / (count - 1));
  runningVar?.lerp_(unbiased.to(runningVar.dtype), momentum);
  return [mean, variance];
}
