/** Basic layers: linear maps, embeddings, dropout, reshapes and distances. */
import type { Device, DeviceName } from '../core/device.js';
import type { DTypeLike } from '../core/dtype.js';
import { ArgumentError, ShapeError } from '../core/errors.js';
import {
  checkFlag,
  checkLimit,
  checkNumber,
  checkProbability,
  checkSizesOf,
  shown,
  unexpected,
} from '../core/options.js';
import { formatShape, type Shape } from '../core/shape.js';
import { type ArgumentsOf, defineArguments, defineFunction } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { overwrite } from '../ops/composite.js';
import { cosineSimilarity, pairwiseDistance } from '../ops/distances.js';
import { dropout } from '../ops/dropout.js';
import { embedding } from '../ops/embedding.js';
import { empty } from '../ops/factories.js';
import { linear } from '../ops/linear.js';
import { requireTensor } from '../ops/operand.js';
import { bilinear } from '../ops/products.js';
import { kaimingUniform_, normal_, uniform_, zeros_ } from './init.js';
import { Module } from './module.js';
import { Parameter } from './parameter.js';

/** Dtype and device of the parameters of a layer. */
export interface LayerOptions {
  /** The dtype of the parameters. */
  dtype?: DTypeLike;
  /** The device of the parameters. */
  device?: DeviceName | Device;
}

/** A parameter with uninitialised values. @internal */
export function makeParameter(size: Shape, { dtype, device }: LayerOptions): Parameter {
  return new Parameter(empty(size, { ...(dtype ? { dtype } : {}), ...(device ? { device } : {}) }));
}

const linearArguments = defineArguments(
  'Linear(inFeatures, outFeatures, bias, *, device, dtype)',
  (inFeatures: number, outFeatures: number, bias = true, place: LayerOptions = {}) => ({
    inFeatures,
    outFeatures,
    bias,
    place,
  }),
);

/**
 * y = x W^T + b. Shapes: `[..., inFeatures]` to `[..., outFeatures]`.
 * @example new nn.Linear(8, 2)(randn([16, 8])).shape; // [16, 2]
 */
export class Linear extends Module {
  /** The size of an input. */
  readonly inFeatures: number;
  /** The size of an output. */
  readonly outFeatures: number;
  /** The weight. */
  weight: Parameter;
  /** The bias; null without one. */
  bias: Parameter | null;

  constructor(...args: ArgumentsOf<typeof linearArguments>) {
    super();
    const { inFeatures, outFeatures, bias, place } = linearArguments(...args);
    checkSizesOf('Linear', { inFeatures, outFeatures });
    checkFlag('Linear', 'bias', bias);
    this.inFeatures = inFeatures;
    this.outFeatures = outFeatures;
    this.weight = makeParameter([outFeatures, inFeatures], place);
    this.bias = bias ? makeParameter([outFeatures], place) : null;
    this.resetParameters();
  }

  /** Initialises as PyTorch: uniform in +-1/sqrt(inFeatures). */
  resetParameters(): void {
    kaimingUniform_(this.weight, { a: Math.sqrt(5) });
    const bound = this.inFeatures > 0 ? 1 / Math.sqrt(this.inFeatures) : 0;
    if (this.bias) uniform_(this.bias, -bound, bound);
  }

  forward(input: Tensor): Tensor {
    return linear(input, this.weight, this.bias);
  }

  override extraRepr(): string {
    return (
      `inFeatures=${this.inFeatures}, outFeatures=${this.outFeatures}, ` +
      `bias=${this.bias !== null}`
    );
  }
}

const bilinearArguments = defineArguments(
  'Bilinear(in1Features, in2Features, outFeatures, bias, *, device, dtype)',
  (
    in1Features: number,
    in2Features: number,
    outFeatures: number,
    bias = true,
    place: LayerOptions = {},
  ) => ({ in1Features, in2Features, outFeatures, bias, place }),
);

/** y = x1^T W x2 + b; `[..., in1Features]`, `[..., in2Features]` give `[..., outFeatures]`. */
export class Bilinear extends Module<[input1: Tensor, input2: Tensor]> {
  /** The size of the first input. */
  readonly in1Features: number;
  /** The size of the second input. */
  readonly in2Features: number;
  /** The size of an output. */
  readonly outFeatures: number;
  /** The weight. */
  weight: Parameter;
  /** The bias; null without one. */
  bias: Parameter | null;

  constructor(...args: ArgumentsOf<typeof bilinearArguments>) {
    super();
    const { in1Features, in2Features, outFeatures, bias, place } = bilinearArguments(...args);
    checkFlag('Bilinear', 'bias', bias);
    checkSizesOf('Bilinear', { in1Features }, 1);
    checkSizesOf('Bilinear', { in2Features, outFeatures });
    this.in1Features = in1Features;
    this.in2Features = in2Features;
    this.outFeatures = outFeatures;
    this.weight = makeParameter([outFeatures, in1Features, in2Features], place);
    this.bias = bias ? makeParameter([outFeatures], place) : null;
    this.resetParameters();
  }

  /** Initialises as PyTorch: uniform in +-1/sqrt(in1Features). */
  resetParameters(): void {
    const bound = 1 / Math.sqrt(this.in1Features);
    uniform_(this.weight, -bound, bound);
    if (this.bias) uniform_(this.bias, -bound, bound);
  }

  forward(input1: Tensor, input2: Tensor): Tensor {
    return bilinear(input1, input2, this.weight, this.bias);
  }

  override extraRepr(): string {
    return (
      `in1Features=${this.in1Features}, in2Features=${this.in2Features}, ` +
      `outFeatures=${this.outFeatures}, bias=${this.bias !== null}`
    );
  }
}

const embeddingArguments = defineArguments(
  'Embedding(numEmbeddings, embeddingDim, paddingIdx, *, device, dtype)',
  (
    numEmbeddings: number,
    embeddingDim: number,
    paddingIdx: number | null = null,
    place: LayerOptions = {},
  ) => ({ numEmbeddings, embeddingDim, paddingIdx, place }),
);

const fromPretrained = defineFunction(
  'fromPretrained(embeddings, freeze, paddingIdx)',
  (embeddings: Tensor, freeze = true, paddingIdx: number | null = null): Embedding => {
    requireTensor(embeddings, 'Embedding.fromPretrained', 'embeddings');
    checkFlag('Embedding.fromPretrained', 'freeze', freeze);
    if (embeddings.ndim !== 2)
      throw new ShapeError(
        `Embedding: expected a matrix, got shape ${formatShape(embeddings.sizes)}`,
        { shape: embeddings.sizes },
      );
    const [rows, columns] = embeddings.sizes as [number, number];
    const layer = new Embedding(rows, columns, paddingIdx, {
      dtype: embeddings.dtype,
      device: embeddings.device,
    });
    layer.weight = new Parameter(embeddings.detach(), !freeze);
    return layer;
  },
);

/**
 * Looks up rows of a table by index. Shapes: int64 `[...]` to `[..., embeddingDim]`. The row
 * `paddingIdx` is zeros and gets no gradient; a negative one counts from the end.
 * @example new nn.Embedding(10, 4)(tensor([[1, 2]], { dtype: int64 })).shape; // [1, 2, 4]
 */
export class Embedding extends Module {
  /** The number of rows. */
  readonly numEmbeddings: number;
  /** The size of a row. */
  readonly embeddingDim: number;
  /** The index whose row gets no gradient; null for none. */
  readonly paddingIdx: number | null;
  /** The weight. */
  weight: Parameter;

  /** @throws ArgumentError if the padding index is out of range */
  constructor(...args: ArgumentsOf<typeof embeddingArguments>) {
    super();
    const { numEmbeddings, embeddingDim, paddingIdx, place } = embeddingArguments(...args);
    checkSizesOf('Embedding', { numEmbeddings, embeddingDim });
    if (
      paddingIdx !== null &&
      !(Number.isInteger(paddingIdx) && paddingIdx >= -numEmbeddings && paddingIdx < numEmbeddings)
    )
      throw new ArgumentError(
        `Embedding: paddingIdx ${shown(paddingIdx)} is out of range for ${numEmbeddings} rows`,
        { paddingIdx, numEmbeddings },
      );
    this.numEmbeddings = numEmbeddings;
    this.embeddingDim = embeddingDim;
    this.paddingIdx =
      paddingIdx !== null && paddingIdx < 0 ? paddingIdx + numEmbeddings : paddingIdx;
    this.weight = makeParameter([numEmbeddings, embeddingDim], place);
    this.resetParameters();
  }

  /**
   * A layer over an existing table, which is not trained unless `freeze` is false. @throws
   * ShapeError unless the table is a matrix
   */
  static readonly fromPretrained: typeof fromPretrained = fromPretrained;

  /** Initialises as PyTorch: standard normal, with zeros in the padding row. */
  resetParameters(): void {
    normal_(this.weight);
    if (this.paddingIdx !== null) zeros_(this.weight.detach().select(0, this.paddingIdx));
  }

  forward(input: Tensor): Tensor {
    return embedding(input, this.weight, { paddingIdx: this.paddingIdx });
  }

  override extraRepr(): string {
    return (
      `${this.numEmbeddings}, ` +
      `${this.embeddingDim}${this.paddingIdx === null ? '' : `, paddingIdx=${this.paddingIdx}`}`
    );
  }
}

const dropoutArguments = defineArguments('Dropout(p, inplace)', (p = 0.5, inplace = false) => ({
  p,
  inplace,
}));

/** While training, sets elements to 0 with probability p and scales the others by 1 / (1 - p). */
export class Dropout extends Module {
  /** The probability of dropping an element. */
  readonly p: number;
  /** Whether `forward` overwrites the input. */
  readonly inplace: boolean;

  /** @throws ArgumentError unless 0 <= p <= 1 */
  constructor(...args: ArgumentsOf<typeof dropoutArguments>) {
    super();
    const { p, inplace } = dropoutArguments(...args);
    checkProbability('Dropout', 'p', p);
    checkFlag('Dropout', 'inplace', inplace);
    this.p = p;
    this.inplace = inplace;
  }

  /** @throws InPlaceError as {@link Tensor.add_}, with `inplace` */
  forward(input: Tensor): Tensor {
    if (!this.inplace || !this.training || this.p === 0)
      return dropout(input, this.p, this.training);
    requireTensor(input, 'Dropout');
    return overwrite('dropout_', input, (t) => dropout(t, this.p, true));
  }

  override extraRepr(): string {
    return `p=${this.p}${this.inplace ? ', inplace=true' : ''}`;
  }
}

/** Returns its input. */
export class Identity extends Module {
  forward(input: Tensor): Tensor {
    return input;
  }
}

const flattenArguments = defineArguments(
  'Flatten(startDim, endDim)',
  (startDim = 1, endDim = -1) => ({ startDim, endDim }),
);

/** Merges neighbouring dims into one; by default all but the first. */
export class Flatten extends Module {
  /** The first dim that is flattened. */
  readonly startDim: number;
  /** The last dim that is flattened. */
  readonly endDim: number;

  constructor(...args: ArgumentsOf<typeof flattenArguments>) {
    super();
    const { startDim, endDim } = flattenArguments(...args);
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

const unflattenArguments = defineArguments(
  'Unflatten(dim, unflattenedSize)',
  (dim: number, unflattenedSize: Shape) => ({ dim, unflattenedSize }),
);

/** Splits one dim into several. */
export class Unflatten extends Module {
  /** The dim along which the module works. */
  readonly dim: number;
  /** The sizes in place of the dim. */
  readonly unflattenedSize: Shape;

  constructor(...args: ArgumentsOf<typeof unflattenArguments>) {
    super();
    const { dim, unflattenedSize } = unflattenArguments(...args);
    checkNumber('Unflatten', 'dim', dim, { whole: true });
    if (!Array.isArray(unflattenedSize))
      throw unexpected('Unflatten', 'unflattenedSize', 'a list of sizes', unflattenedSize);
    for (const size of unflattenedSize)
      checkNumber('Unflatten', 'each size', size, { from: -1, whole: true });
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

const cosineArguments = defineArguments('CosineSimilarity(dim, eps)', (dim = 1, eps = 1e-8) => ({
  dim,
  eps,
}));

/** The cosine of the angle between vectors along a dim. */
export class CosineSimilarity extends Module<[x1: Tensor, x2: Tensor]> {
  /** The dim along which the module works. */
  readonly dim: number;
  /** The number that keeps the division from 0. */
  readonly eps: number;

  constructor(...args: ArgumentsOf<typeof cosineArguments>) {
    super();
    const { dim, eps } = cosineArguments(...args);
    checkNumber('CosineSimilarity', 'dim', dim, { whole: true });
    checkNumber('CosineSimilarity', 'eps', eps);
    this.dim = dim;
    this.eps = eps;
  }

  forward(x1: Tensor, x2: Tensor): Tensor {
    return cosineSimilarity(x1, x2, { dim: this.dim, eps: this.eps });
  }
}

const pairwiseArguments = defineArguments(
  'PairwiseDistance(p, eps, keepdim)',
  (p = 2, eps = 1e-6, keepdim = false) => ({ p, eps, keepdim }),
);

/** The p-norm of the difference of rows. */
export class PairwiseDistance extends Module<[x1: Tensor, x2: Tensor]> {
  /** The exponent, the number added to differences, and whether the dim is kept. */
  readonly options: { p: number; eps: number; keepdim: boolean };

  constructor(...args: ArgumentsOf<typeof pairwiseArguments>) {
    super();
    const { p, eps, keepdim } = pairwiseArguments(...args);
    checkLimit('PairwiseDistance', 'p', p);
    checkNumber('PairwiseDistance', 'eps', eps);
    checkFlag('PairwiseDistance', 'keepdim', keepdim);
    this.options = { p, eps, keepdim };
  }

  forward(x1: Tensor, x2: Tensor): Tensor {
    return pairwiseDistance(x1, x2, this.options);
  }
}
