/** Normalisation layers, with PyTorch's parameter names. */

import { noGrad } from '../autograd/grad-mode.js';
import { int64 } from '../core/dtype.js';
import { ArgumentError, ShapeError } from '../core/errors.js';
import { checkFlag, checkNumber, checkSizesOf } from '../core/options.js';
import { formatShape, type Shape } from '../core/shape.js';
import { type ArgumentsOf, defineArguments } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { batchNorm, groupNorm } from '../ops/batch-norm.js';
import { empty } from '../ops/factories.js';
import { layerNorm } from '../ops/layer-norm.js';
import { requireTensor } from '../ops/operand.js';
import { rmsNorm } from '../ops/rms-norm.js';
import { ones_, zeros_ } from './init.js';
import { type LayerOptions, makeParameter } from './layers.js';
import { Module } from './module.js';
import type { Parameter } from './parameter.js';

/** A size or sizes as a list. @throws ArgumentError */
function checkShape(op: string, shape: number | Shape): Shape {
  const sizes = Array.isArray(shape) ? [...(shape as Shape)] : [shape as number];
  for (const size of sizes) checkSizesOf(op, { normalizedShape: size });
  return sizes;
}

const layerNormArguments = defineArguments(
  'LayerNorm(normalizedShape, eps, elementwiseAffine, bias, *, device, dtype)',
  (
    normalizedShape: number | Shape,
    eps = 1e-5,
    elementwiseAffine = true,
    bias = true,
    place: LayerOptions = {},
  ) => ({ normalizedShape, eps, elementwiseAffine, bias, place }),
);

/**
 * Layer normalisation over the last dims, with a learned gain and bias.
 *
 * @example
 * const norm = new nn.LayerNorm(4);
 * norm(tensor([[1, 1, 3, 3]])); // [[-1, -1, 1, 1]]
 */
export class LayerNorm extends Module {
  /** The sizes of the last dims, which are normalized together. */
  readonly normalizedShape: Shape;
  /** The number that keeps the division from 0. */
  readonly eps: number;
  /** The weight. */
  weight: Parameter | null;
  /** The bias; null without one. */
  bias: Parameter | null;

  constructor(...args: ArgumentsOf<typeof layerNormArguments>) {
    super();
    const { normalizedShape, eps, elementwiseAffine, bias, place } = layerNormArguments(...args);
    this.normalizedShape = checkShape('LayerNorm', normalizedShape);
    checkNumber('LayerNorm', 'eps', eps);
    checkFlag('LayerNorm', 'elementwiseAffine', elementwiseAffine);
    checkFlag('LayerNorm', 'bias', bias);
    this.eps = eps;
    this.weight = elementwiseAffine ? makeParameter(this.normalizedShape, place) : null;
    this.bias = elementwiseAffine && bias ? makeParameter(this.normalizedShape, place) : null;
    this.resetParameters();
  }

  /** Initialises gains to 1 and biases to 0. */
  resetParameters(): void {
    if (this.weight) ones_(this.weight);
    if (this.bias) zeros_(this.bias);
  }

  forward(input: Tensor): Tensor {
    return layerNorm(input, this.normalizedShape, this.weight, this.bias, this.eps);
  }

  override extraRepr(): string {
    return (
      `[${this.normalizedShape.join(', ')}], eps=${this.eps}, ` +
      `elementwiseAffine=${this.weight !== null}`
    );
  }
}

const rmsNormArguments = defineArguments(
  'RMSNorm(normalizedShape, eps, elementwiseAffine, *, device, dtype)',
  (
    normalizedShape: number | Shape,
    eps: number | null = null,
    elementwiseAffine = true,
    place: LayerOptions = {},
  ) => ({ normalizedShape, eps, elementwiseAffine, place }),
);

/**
 * RMS normalisation over the last dims, with a learned gain. An `eps` of null is the machine
 * epsilon of the input's dtype.
 */
export class RMSNorm extends Module {
  /** The sizes of the last dims, which are normalized together. */
  readonly normalizedShape: Shape;
  /** The number added to the mean square; null takes the dtype's epsilon. */
  readonly eps: number | null;
  /** The weight. */
  weight: Parameter | null;

  constructor(...args: ArgumentsOf<typeof rmsNormArguments>) {
    super();
    const { normalizedShape, eps, elementwiseAffine, place } = rmsNormArguments(...args);
    checkFlag('RMSNorm', 'elementwiseAffine', elementwiseAffine);
    this.normalizedShape = checkShape('RMSNorm', normalizedShape);
    if (eps !== null) checkNumber('RMSNorm', 'eps', eps);
    this.eps = eps;
    this.weight = elementwiseAffine ? makeParameter(this.normalizedShape, place) : null;
    this.resetParameters();
  }

  /** Initialises gains to 1. */
  resetParameters(): void {
    if (this.weight) ones_(this.weight);
  }

  forward(input: Tensor): Tensor {
    return rmsNorm(input, this.normalizedShape, this.weight, this.eps);
  }

  override extraRepr(): string {
    return (
      `[${this.normalizedShape.join(', ')}], eps=${this.eps}, ` +
      `elementwiseAffine=${this.weight !== null}`
    );
  }
}

const groupNormArguments = defineArguments(
  'GroupNorm(numGroups, numChannels, eps, affine, *, device, dtype)',
  (
    numGroups: number,
    numChannels: number,
    eps = 1e-5,
    affine = true,
    place: LayerOptions = {},
  ) => ({ numGroups, numChannels, eps, affine, place }),
);

/** Normalises groups of channels (dim 1), with a learned gain and bias for each channel. */
export class GroupNorm extends Module {
  /** The number of groups of channels. */
  readonly numGroups: number;
  /** The number of channels. */
  readonly numChannels: number;
  /** The number that keeps the division from 0. */
  readonly eps: number;
  /** The weight. */
  weight: Parameter | null;
  /** The bias; null without one. */
  bias: Parameter | null;

  /** @throws ArgumentError unless the groups divide the channels */
  constructor(...args: ArgumentsOf<typeof groupNormArguments>) {
    super();
    const { numGroups, numChannels, eps, affine, place } = groupNormArguments(...args);
    checkFlag('GroupNorm', 'affine', affine);
    checkSizesOf('GroupNorm', { numGroups }, 1);
    checkSizesOf('GroupNorm', { numChannels });
    checkNumber('GroupNorm', 'eps', eps);
    if (numChannels % numGroups !== 0)
      throw new ArgumentError(
        `GroupNorm: ${numChannels} channels do not divide into ${numGroups} groups`,
        { numGroups, numChannels },
      );
    this.numGroups = numGroups;
    this.numChannels = numChannels;
    this.eps = eps;
    this.weight = affine ? makeParameter([numChannels], place) : null;
    this.bias = affine ? makeParameter([numChannels], place) : null;
    this.resetParameters();
  }

  /** Initialises gains to 1 and biases to 0. */
  resetParameters(): void {
    if (this.weight) ones_(this.weight);
    if (this.bias) zeros_(this.bias);
  }

  forward(input: Tensor): Tensor {
    return groupNorm(input, this.numGroups, this.weight, this.bias, this.eps);
  }

  override extraRepr(): string {
    return (
      `${this.numGroups}, ${this.numChannels}, eps=${this.eps}, ` + `affine=${this.weight !== null}`
    );
  }
}

const batchNormArguments = defineArguments(
  'BatchNorm1d(numFeatures, eps, momentum, affine, trackRunningStats, *, device, dtype)',
  (
    numFeatures: number,
    eps = 1e-5,
    momentum: number | null = 0.1,
    affine = true,
    trackRunningStats = true,
    place: LayerOptions = {},
  ) => ({
    numFeatures,
    eps,
    momentum,
    affine,
    trackRunningStats,
    place,
  }),
);

/**
 * Normalises channels over the batch. Shapes: `[N, C]` or `[N, C, L]`. `momentum` is the weight of
 * each new batch in the running statistics; null makes them the average of all batches.
 */
export class BatchNorm1d extends Module {
  /** The number of features. */
  readonly numFeatures: number;
  /** The number that keeps the division from 0. */
  readonly eps: number;
  /** The weight of a batch in the running statistics; null averages all batches. */
  readonly momentum: number | null;
  /** The weight. */
  weight: Parameter | null;
  /** The bias; null without one. */
  bias: Parameter | null;
  /** The running mean of each feature; null without running statistics. */
  declare running_mean: Tensor | null;
  /** The running variance of each feature; null without running statistics. */
  declare running_var: Tensor | null;
  /** The number of batches in the running statistics. */
  declare num_batches_tracked: Tensor | null;

  constructor(...args: ArgumentsOf<typeof batchNormArguments>) {
    super();
    const { numFeatures, eps, momentum, affine, trackRunningStats, place } = batchNormArguments(
      ...args,
    );
    checkFlag('BatchNorm1d', 'affine', affine);
    checkFlag('BatchNorm1d', 'trackRunningStats', trackRunningStats);
    checkSizesOf('BatchNorm1d', { numFeatures });
    checkNumber('BatchNorm1d', 'eps', eps);
    if (momentum !== null) checkNumber('BatchNorm1d', 'momentum', momentum);
    this.numFeatures = numFeatures;
    this.eps = eps;
    this.momentum = momentum;
    this.weight = affine ? makeParameter([numFeatures], place) : null;
    this.bias = affine ? makeParameter([numFeatures], place) : null;
    this.registerBuffer('running_mean', trackRunningStats ? empty([numFeatures], place) : null);
    this.registerBuffer('running_var', trackRunningStats ? empty([numFeatures], place) : null);
    this.registerBuffer(
      'num_batches_tracked',
      trackRunningStats ? empty([], { ...place, dtype: int64 }) : null,
    );
    this.resetParameters();
  }

  /** Initialises gains to 1, biases to 0, and the running statistics. */
  resetParameters(): void {
    this.resetRunningStats();
    if (this.weight) ones_(this.weight);
    if (this.bias) zeros_(this.bias);
  }

  /** Sets running means to 0, running variances to 1, and the number of batches to 0. */
  resetRunningStats(): void {
    if (this.running_mean) zeros_(this.running_mean);
    if (this.running_var) ones_(this.running_var);
    if (this.num_batches_tracked) zeros_(this.num_batches_tracked);
  }

  forward(input: Tensor): Tensor {
    const { weight, bias, eps, numFeatures, running_mean, running_var } = this;
    requireTensor(input, 'BatchNorm1d');
    if ((input.ndim !== 2 && input.ndim !== 3) || input.sizes[1] !== numFeatures)
      throw new ShapeError(
        `BatchNorm1d: expected shape [N, ${numFeatures}] or [N, ${numFeatures}, L], got ` +
          `${formatShape(input.sizes)}`,
        { shape: input.sizes },
      );
    const training = this.training || running_mean === null;
    const momentum = this.training ? this.nextMomentum() : 0;
    return batchNorm(input, running_mean, running_var, { weight, bias, eps, training, momentum });
  }

  /** Counts a batch and returns the weight of its statistics. */
  private nextMomentum(): number {
    if (this.num_batches_tracked === null) return 0;
    const count = this.num_batches_tracked;
    noGrad(() => count.add_(1));
    return this.momentum ?? 1 / Number(count.item());
  }

  override extraRepr(): string {
    return (
      `${this.numFeatures}, eps=${this.eps}, momentum=${this.momentum}, ` +
      `affine=${this.weight !== null}, trackRunningStats=${this.running_mean !== null}`
    );
  }
}
