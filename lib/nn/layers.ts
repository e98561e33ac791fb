/** Basic layers: Linear, Bilinear, Embedding, Dropout, Flatten, Identity. */
import type { Device, DeviceName } from '../core/device.js';
import type { DTypeLike } from '../core/dtype.js';
import { ArgumentError, ShapeError } from '../core/errors.js';
import { checkLimit, checkNumber, checkProbability, checkSizesOf, optionsOf, unexpected } from '../core/options.js';
import { formatShape, type Shape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { empty } from '../ops/factories.js';
import { embedding } from '../ops/indexing.js';
import { linear } from '../ops/matmul.js';
import { requireTensor } from '../ops/operand.js';
import { bilinear, cosineSimilarity, pairwiseDistance } from '../ops/products.js';
import { dropout } from '../ops/random.js';
import { kaimingUniform_, normal_, uniform_, zeros_ } from './init.js';
import { Module } from './module.js';
import { Parameter } from './parameter.js';

/** Where and in which type a layer makes its parameters. */
export interface LayerOptions {
  dtype?: DTypeLike;
  device?: DeviceName | Device;
}

/** A parameter whose values are yet to be set. @internal */
export function makeParameter(size: Shape, { dtype, device }: LayerOptions): Parameter {
  return new Parameter(empty(size, { ...(dtype ? { dtype } : {}), ...(device ? { device } : {}) }));
}

/** y = x W^T + b. Shapes: `[..., inFeatures]` to `[..., outFeatures]`. */
export class Linear extends Module {
  readonly inFeatures: number;
  readonly outFeatures: number;
  weight: Parameter;
  bias: Parameter | null;

  constructor(inFeatures: number, outFeatures: number, options: LayerOptions & { bias?: boolean } = {}) {
    super();
    const { bias = true, ...place } = optionsOf('Linear', options, 'bias dtype device');
    checkSizesOf('Linear', { inFeatures, outFeatures });
    this.inFeatures = inFeatures;
    this.outFeatures = outFeatures;
    this.weight = makeParameter([outFeatures, inFeatures], place);
    this.bias = bias ? makeParameter([outFeatures], place) : null;
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

/** y = x1^T W x2 + b. Shapes: `[..., in1Features]` and `[..., in2Features]` to `[..., outFeatures]`. */
export class Bilinear extends Module<[input1: Tensor, input2: Tensor]> {
  readonly in1Features: number;
  readonly in2Features: number;
  readonly outFeatures: number;
  weight: Parameter;
  bias: Parameter | null;

  constructor(in1Features: number, in2Features: number, outFeatures: number, options: LayerOptions & { bias?: boolean } = {}) {
    super();
    const { bias = true, ...place } = optionsOf('Bilinear', options, 'bias dtype device');
    checkSizesOf('Bilinear', { in1Features }, 1);
    checkSizesOf('Bilinear', { in2Features, outFeatures });
    this.in1Features = in1Features;
    this.in2Features = in2Features;
    this.outFeatures = outFeatures;
    this.weight = makeParameter([outFeatures, in1Features, in2Features], place);
    this.bias = bias ? makeParameter([outFeatures], place) : null;
    this.resetParameters();
  }

  /** Uniform in +-1/sqrt(in1Features). */
  resetParameters(): void {
    const bound = 1 / Math.sqrt(this.in1Features);
    uniform_(this.weight, -bound, bound);
    if (this.bias) uniform_(this.bias, -bound, bound);
  }

  forward(input1: Tensor, input2: Tensor): Tensor {
    return bilinear(input1, input2, this.weight, this.bias);
  }

  override extraRepr(): string {
    return `in1Features=${this.in1Features}, in2Features=${this.in2Features}, outFeatures=${this.outFeatures}, bias=${this.bias !== null}`;
  }
}

/** Options of {@link Embedding}. */
export interface EmbeddingOptions extends LayerOptions {
  /** A row of zeros that gets no gradient; negative ones count from the end. */
  paddingIdx?: number | null;
}

/** Rows of a table by index. Shapes: int64 `[...]` to `[..., embeddingDim]`. */
export class Embedding extends Module {
  readonly numEmbeddings: number;
  readonly embeddingDim: number;
  readonly paddingIdx: number | null;
  weight: Parameter;

  /** @throws ArgumentError for a padding index out of range */
  constructor(numEmbeddings: number, embeddingDim: number, options: EmbeddingOptions = {}) {
    super();
    const { paddingIdx = null, ...place } = optionsOf('Embedding', options, 'paddingIdx dtype device');
    checkSizesOf('Embedding', { numEmbeddings, embeddingDim });
    if (paddingIdx !== null && !(Number.isInteger(paddingIdx) && paddingIdx >= -numEmbeddings && paddingIdx < numEmbeddings))
      throw new ArgumentError(`Embedding: paddingIdx ${paddingIdx} is out of range for ${numEmbeddings} rows`, { paddingIdx, numEmbeddings });
    this.numEmbeddings = numEmbeddings;
    this.embeddingDim = embeddingDim;
    this.paddingIdx = paddingIdx !== null && paddingIdx < 0 ? paddingIdx + numEmbeddings : paddingIdx;
    this.weight = makeParameter([numEmbeddings, embeddingDim], place);
    this.resetParameters();
  }

  /** A layer over a table that is there already (and by default stays as it is). @throws ShapeError unless it is a matrix */
  static fromPretrained(embeddings: Tensor, options: { freeze?: boolean; paddingIdx?: number | null } = {}): Embedding {
    const { freeze = true, paddingIdx = null } = optionsOf('Embedding.fromPretrained', options, 'freeze paddingIdx');
    requireTensor(embeddings, 'Embedding.fromPretrained', 'embeddings');
    if (embeddings.ndim !== 2) throw new ShapeError(`Embedding: expected a matrix, got shape ${formatShape(embeddings.shape)}`, { shape: embeddings.shape });
    const [rows, columns] = embeddings.shape as [number, number];
    const layer = new Embedding(rows, columns, { paddingIdx, dtype: embeddings.dtype, device: embeddings.device });
    layer.weight = new Parameter(embeddings.detach(), !freeze);
    return layer;
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
    return `${this.numEmbeddings}, ${this.embeddingDim}${this.paddingIdx === null ? '' : `, paddingIdx=${this.paddingIdx}`}`;
  }
}

/** While training, sets elements to 0 with probability p and scales the others. */
export class Dropout extends Module {
  readonly p: number;

  /** @throws ArgumentError unless 0 <= p <= 1 */
  constructor(p = 0.5) {
    super();
    checkProbability('Dropout', 'p', p);
    this.p = p;
  }

  forward(input: Tensor): Tensor {
    return dropout(input, this.p, this.training);
  }

  override extraRepr(): string {
    return `p=${this.p}`;
  }
}

/** Returns its input. */
export class Identity extends Module {
  forward(input: Tensor): Tensor {
    return input;
  }
}

/** Neighbouring dims merged into one; by default all but the first. */
export class Flatten extends Module {
  readonly startDim: number;
  readonly endDim: number;

  constructor(startDim = 1, endDim = -1) {
    super();
    checkNumber('Flatten', 'startDim', startDim, { whole: true });
    checkNumber('Flatten', 'endDim', endDim, { whole: true });
    this.startDim = startDim;
    this.endDim = endDim;
  }

  forward(input: Tensor): Tensor {
    requireTensor(input, 'Flatten');
    return input.flatten(this.startDim, this.endDim);
  }

  override extraRepr(): string {
    return `startDim=${this.startDim}, endDim=${this.endDim}`;
  }
}

/** One dim split into several. */
export class Unflatten extends Module {
  readonly dim: number;
  readonly unflattenedSize: Shape;

  constructor(dim: number, unflattenedSize: Shape) {
    super();
    checkNumber('Unflatten', 'dim', dim, { whole: true });
    if (!Array.isArray(unflattenedSize)) throw unexpected('Unflatten', 'unflattenedSize', 'a list of sizes', unflattenedSize);
    for (const size of unflattenedSize) checkNumber('Unflatten', 'each size', size, { from: -1, whole: true });
    this.dim = dim;
    this.unflattenedSize = [...unflattenedSize];
  }

  forward(input: Tensor): Tensor {
    requireTensor(input, 'Unflatten');
    return input.unflatten(this.dim, this.unflattenedSize);
  }

  override extraRepr(): string {
    return `dim=${this.dim}, unflattenedSize=${formatShape(this.unflattenedSize)}`;
  }
}

/** The cosine of the angle between vectors along a dim. */
export class CosineSimilarity extends Module<[x1: Tensor, x2: Tensor]> {
  readonly dim: number;
  readonly eps: number;

  constructor(options: { dim?: number; eps?: number } = {}) {
    super();
    const { dim = 1, eps = 1e-8 } = optionsOf('CosineSimilarity', options, 'dim eps');
    checkNumber('CosineSimilarity', 'dim', dim, { whole: true });
    checkNumber('CosineSimilarity', 'eps', eps);
    this.dim = dim;
    this.eps = eps;
  }

  forward(x1: Tensor, x2: Tensor): Tensor {
    return cosineSimilarity(x1, x2, { dim: this.dim, eps: this.eps });
  }
}

/** The p-norm of the difference of rows. */
export class PairwiseDistance extends Module<[x1: Tensor, x2: Tensor]> {
  readonly options: { p?: number; eps?: number; keepdim?: boolean };

  constructor(options: { p?: number; eps?: number; keepdim?: boolean } = {}) {
    super();
    const { p = 2, eps = 1e-6 } = optionsOf('PairwiseDistance', options, 'p eps');
    checkLimit('PairwiseDistance', 'p', p);
    checkNumber('PairwiseDistance', 'eps', eps);
    this.options = options;
  }

  forward(x1: Tensor, x2: Tensor): Tensor {
    return pairwiseDistance(x1, x2, this.options);
  }
}
