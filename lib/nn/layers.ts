/** Basic layers: Linear, Embedding, normalisations, Dropout, activations, losses. */
import type { Device, DeviceName } from '../core/device.js';
import type { DType } from '../core/dtype.js';
import type { Shape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { type GeluApproximate, gelu, relu, silu } from '../ops/activation.js';
import { empty } from '../ops/factories.js';
import { embedding } from '../ops/indexing.js';
import { type CrossEntropyOptions, crossEntropy, type LossOptions, mseLoss } from '../ops/loss.js';
import { linear } from '../ops/matmul.js';
import { layerNorm, rmsNorm } from '../ops/norm.js';
import { dropout } from '../ops/random.js';
import { softmax } from '../ops/softmax.js';
import { kaimingUniform_, normal_, ones_, uniform_, zeros_ } from './init.js';
import { Module } from './module.js';
import { Parameter } from './parameter.js';

/** Where and in which type a layer makes its parameters. */
export interface LayerOptions {
  dtype?: DType;
  device?: DeviceName | Device;
}

function parameter(size: Shape, { dtype, device }: LayerOptions): Parameter {
  return new Parameter(empty(size, { ...(dtype ? { dtype } : {}), ...(device ? { device } : {}) }));
}

/** y = x W^T + b. Shapes: `[..., inFeatures]` to `[..., outFeatures]`. */
export class Linear extends Module {
  readonly inFeatures: number;
  readonly outFeatures: number;
  weight: Parameter;
  bias: Parameter | null;

  constructor(inFeatures: number, outFeatures: number, { bias = true, ...options }: LayerOptions & { bias?: boolean } = {}) {
    super();
    this.inFeatures = inFeatures;
    this.outFeatures = outFeatures;
    this.weight = parameter([outFeatures, inFeatures], options);
    this.bias = bias ? parameter([outFeatures], options) : null;
    this.resetParameters();
  }

  /** Uniform in +-1/sqrt(inFeatures), as PyTorch initialises. */
  resetParameters(): void {
    kaimingUniform_(this.weight, { a: Math.sqrt(5) });
    const bound = this.inFeatures > 0 ? 1 / Math.sqrt(this.inFeatures) : 0;
    if (this.bias) uniform_(this.bias, -bound, bound);
  }

  forward(input: Tensor): Tensor {
    return linear(input, this.weight, this.bias);
  }

  override extraRepr(): string {
    return `inFeatures=${this.inFeatures}, outFeatures=${this.outFeatures}, bias=${this.bias !== null}`;
  }
}

/** Rows of a table by index. Shapes: int64 `[...]` to `[..., embeddingDim]`. */
export class Embedding extends Module {
  readonly numEmbeddings: number;
  readonly embeddingDim: number;
  readonly paddingIdx: number | null;
  weight: Parameter;

  constructor(numEmbeddings: number, embeddingDim: number, { paddingIdx = null, ...options }: LayerOptions & { paddingIdx?: number | null } = {}) {
    super();
    this.numEmbeddings = numEmbeddings;
    this.embeddingDim = embeddingDim;
    this.paddingIdx = paddingIdx;
    this.weight = parameter([numEmbeddings, embeddingDim], options);
    this.resetParameters();
  }

  /** Standard normal, zeros in the padding row. */
  resetParameters(): void {
    normal_(this.weight);
    if (this.paddingIdx !== null) zeros_(this.weight.detach().select(0, this.paddingIdx));
  }

  forward(input: Tensor): Tensor {
    return embedding(input, this.weight, { paddingIdx: this.paddingIdx });
  }

  override extraRepr(): string {
    return `${this.numEmbeddings}, ${this.embeddingDim}`;
  }
}

/** Layer normalisation over the last dims, with a gain and a bias. */
export class LayerNorm extends Module {
  readonly normalizedShape: Shape;
  readonly eps: number;
  weight: Parameter | null;
  bias: Parameter | null;

  constructor(
    normalizedShape: number | Shape,
    { eps = 1e-5, elementwiseAffine = true, bias = true, ...options }: LayerOptions & { eps?: number; elementwiseAffine?: boolean; bias?: boolean } = {},
  ) {
    super();
    this.normalizedShape = typeof normalizedShape === 'number' ? [normalizedShape] : [...normalizedShape];
    this.eps = eps;
    this.weight = elementwiseAffine ? parameter(this.normalizedShape, options) : null;
    this.bias = elementwiseAffine && bias ? parameter(this.normalizedShape, options) : null;
    this.resetParameters();
  }

  resetParameters(): void {
    if (this.weight) ones_(this.weight);
    if (this.bias) zeros_(this.bias);
  }

  forward(input: Tensor): Tensor {
    return layerNorm(input, this.normalizedShape, this.weight, this.bias, this.eps);
  }

  override extraRepr(): string {
    return `[${this.normalizedShape.join(', ')}], eps=${this.eps}, elementwiseAffine=${this.weight !== null}`;
  }
}

/** RMS normalisation over the last dims, with a gain. */
export class RMSNorm extends Module {
  readonly normalizedShape: Shape;
  readonly eps: number | null;
  weight: Parameter | null;

  constructor(normalizedShape: number | Shape, { eps = null, elementwiseAffine = true, ...options }: LayerOptions & { eps?: number | null; elementwiseAffine?: boolean } = {}) {
    super();
    this.normalizedShape = typeof normalizedShape === 'number' ? [normalizedShape] : [...normalizedShape];
    this.eps = eps;
    this.weight = elementwiseAffine ? parameter(this.normalizedShape, options) : null;
    if (this.weight) ones_(this.weight);
  }

  forward(input: Tensor): Tensor {
    return rmsNorm(input, this.normalizedShape, this.weight, this.eps);
  }

  override extraRepr(): string {
    return `[${this.normalizedShape.join(', ')}], eps=${this.eps}, elementwiseAffine=${this.weight !== null}`;
  }
}

/** While training, sets elements to 0 with probability p and scales the others. */
export class Dropout extends Module {
  readonly p: number;

  constructor(p = 0.5) {
    super();
    this.p = p;
  }

  forward(input: Tensor): Tensor {
    return dropout(input, this.p, this.training);
  }

  override extraRepr(): string {
    return `p=${this.p}`;
  }
}

/** max(x, 0). */
export class ReLU extends Module {
  forward(input: Tensor): Tensor {
    return relu(input);
  }
}

/** x times the normal distribution function of x. */
export class GELU extends Module {
  readonly approximate: GeluApproximate;

  constructor({ approximate = 'none' }: { approximate?: GeluApproximate } = {}) {
    super();
    this.approximate = approximate;
  }

  forward(input: Tensor): Tensor {
    return gelu(input, { approximate: this.approximate });
  }
}

/** x * sigmoid(x). */
export class SiLU extends Module {
  forward(input: Tensor): Tensor {
    return silu(input);
  }
}

/** Hyperbolic tangent. */
export class Tanh extends Module {
  forward(input: Tensor): Tensor {
    return input.tanh();
  }
}

/** 1 / (1 + exp(-x)). */
export class Sigmoid extends Module {
  forward(input: Tensor): Tensor {
    return input.sigmoid();
  }
}

/** softmax along a dim. */
export class Softmax extends Module {
  readonly dim: number;

  constructor(dim = -1) {
    super();
    this.dim = dim;
  }

  forward(input: Tensor): Tensor {
    return softmax(input, this.dim);
  }
}

/** Returns its input. */
export class Identity extends Module {
  forward(input: Tensor): Tensor {
    return input;
  }
}

/** Cross entropy of logits and class indices; see `crossEntropy`. */
export class CrossEntropyLoss extends Module<[input: Tensor, target: Tensor]> {
  readonly options: CrossEntropyOptions;

  constructor({ weight = null, ...options }: CrossEntropyOptions = {}) {
    super();
    this.registerBuffer('weight', weight);
    this.options = options;
  }

  forward(input: Tensor, target: Tensor): Tensor {
    return crossEntropy(input, target, { ...this.options, weight: (this as unknown as { weight: Tensor | null }).weight });
  }
}

/** Mean of squared differences. */
export class MSELoss extends Module<[input: Tensor, target: Tensor]> {
  readonly options: LossOptions;

  constructor(options: LossOptions = {}) {
    super();
    this.options = options;
  }

  forward(input: Tensor, target: Tensor): Tensor {
    return mseLoss(input, target, this.options);
  }
}
