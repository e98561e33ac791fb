/** The transformer of "Attention is all you need", numerically PyTorch's given the same weights. */
import { float32 } from '../core/dtype.js';
import { ArgumentError } from '../core/errors.js';
import { checkFlag, checkOneOf, checkSizesOf, optionsOf, unexpected } from '../core/options.js';
import type { Tensor } from '../core/tensor.js';
import { gelu, relu } from '../ops/activation.js';
import { full, type TensorOptions } from '../ops/factories.js';
import { triu } from '../ops/join.js';
import { requireTensor } from '../ops/operand.js';
import { MultiheadAttention } from './attention.js';
import { maskOptionsOf } from './attention-masks.js';
import { ModuleList } from './containers.js';
import { xavierUniform_ } from './init.js';
import { Dropout, type LayerOptions, Linear } from './layers.js';
import { type AnyModule, Module } from './module.js';
import { LayerNorm } from './normalization.js';

/** Activation between the two products of a feed-forward block. */
export type Activation = 'relu' | 'gelu' | ((x: Tensor) => Tensor);

/** Options of the layers. */
export interface TransformerLayerOptions extends LayerOptions {
  dimFeedforward?: number;
  dropout?: number;
  activation?: Activation;
  layerNormEps?: number;
  batchFirst?: boolean;
  /** Normalise before each block instead of after it. */
  normFirst?: boolean;
  bias?: boolean;
}

const activations: Record<'relu' | 'gelu', (x: Tensor) => Tensor> = { relu, gelu };

interface Settings {
  dimFeedforward: number;
  dropout: number;
  activation: (x: Tensor) => Tensor;
  normFirst: boolean;
  attention: { dropout: number; bias: boolean; batchFirst: boolean } & LayerOptions;
  norm: { eps: number; bias: boolean } & LayerOptions;
  linear: { bias: boolean } & LayerOptions;
}

function settingsOf(op: string, options: TransformerLayerOptions): Settings {
  const {
    dimFeedforward = 2048,
    dropout = 0.1,
    activation = 'relu',
    layerNormEps = 1e-5,
    batchFirst = false,
    normFirst = false,
    bias = true,
    ...place
  } = optionsOf(op, options, 'dimFeedforward dropout activation layerNormEps batchFirst normFirst bias dtype device');
  checkSizesOf(op, { dimFeedforward });
  for (const [name, flag] of Object.entries({ batchFirst, normFirst, bias })) checkFlag(op, name, flag);
  if (typeof activation !== 'function') checkOneOf(op, 'activation', activation, Object.keys(activations));
  return {
    dimFeedforward,
    dropout,
    activation: typeof activation === 'function' ? activation : activations[activation],
    normFirst,
    attention: { dropout, bias, batchFirst, ...place },
    norm: { eps: layerNormEps, bias, ...place },
    linear: { bias, ...place },
  };
}

type LayerArguments = [dModel: number, nhead: number, options: TransformerLayerOptions];

/** A module of the same kind with the values, dtypes, devices and mode of another; what ranks hold together there, they hold alike. */
function withStateOf<M extends AnyModule>(module: M, other: M): M {
  for (const dtype of new Set([...other.parameters()].map((p) => p.dtype))) module.to(dtype);
  for (const device of new Set([...other.parameters()].map((p) => p.device))) module.to(device);
  const own = new Map(module.namedParameters());
  for (const [name, p] of other.namedParameters()) if (p.sharding !== null) (own.get(name) as Tensor).data = p.detach().clone();
  module.loadStateDict(other.stateDict());
  return module.train(other.training) as M;
}

const encoderMasks = 'srcMask srcKeyPaddingMask isCausal';

/** Masks of an encoder layer. */
export interface EncoderMasks {
  srcMask?: Tensor | null;
  srcKeyPaddingMask?: Tensor | null;
  isCausal?: boolean;
}

/** Self-attention and a feed-forward block, each with a residual connection and a normalisation. */
export class TransformerEncoderLayer extends Module<[src: Tensor, masks?: EncoderMasks]> {
  self_attn: MultiheadAttention;
  linear1: Linear;
  dropout: Dropout;
  linear2: Linear;
  norm1: LayerNorm;
  norm2: LayerNorm;
  dropout1: Dropout;
  dropout2: Dropout;
  private readonly activation: (x: Tensor) => Tensor;
  private readonly normFirst: boolean;
  private readonly madeWith: LayerArguments;

  constructor(dModel: number, nhead: number, options: TransformerLayerOptions = {}) {
    super();
    const s = settingsOf('TransformerEncoderLayer', options);
    this.madeWith = [dModel, nhead, options];
    this.self_attn = new MultiheadAttention(dModel, nhead, s.attention);
    this.linear1 = new Linear(dModel, s.dimFeedforward, s.linear);
    this.dropout = new Dropout(s.dropout);
    this.linear2 = new Linear(s.dimFeedforward, dModel, s.linear);
    this.norm1 = new LayerNorm(dModel, s.norm);
    this.norm2 = new LayerNorm(dModel, s.norm);
    this.dropout1 = new Dropout(s.dropout);
    this.dropout2 = new Dropout(s.dropout);
    this.activation = s.activation;
    this.normFirst = s.normFirst;
  }

  /** A layer of its own with the same values; what PyTorch's `copy.deepcopy` gives. */
  copy(): TransformerEncoderLayer {
    return withStateOf(new TransformerEncoderLayer(...this.madeWith), this);
  }

  forward(src: Tensor, masks: EncoderMasks = {}): Tensor {
    requireTensor(src, 'TransformerEncoderLayer', 'src');
    maskOptionsOf('TransformerEncoderLayer', masks, encoderMasks);
    if (this.normFirst) {
      const x = src.add(this.attend(this.norm1(src), masks));
      return x.add(this.feedForward(this.norm2(x)));
    }
    const x = this.norm1(src.add(this.attend(src, masks)));
    return this.norm2(x.add(this.feedForward(x)));
  }

  private attend(x: Tensor, { srcMask = null, srcKeyPaddingMask = null, isCausal = false }: EncoderMasks): Tensor {
    const [out] = this.self_attn(x, x, x, { attnMask: srcMask, keyPaddingMask: srcKeyPaddingMask, needWeights: false, isCausal });
    return this.dropout1(out);
  }

  private feedForward(x: Tensor): Tensor {
    return this.dropout2(this.linear2(this.dropout(this.activation(this.linear1(x)))));
  }
}

const decoderMasks = 'tgtMask memoryMask tgtKeyPaddingMask memoryKeyPaddingMask tgtIsCausal memoryIsCausal';

/** Masks of a decoder layer. */
export interface DecoderMasks {
  tgtMask?: Tensor | null;
  memoryMask?: Tensor | null;
  tgtKeyPaddingMask?: Tensor | null;
  memoryKeyPaddingMask?: Tensor | null;
  tgtIsCausal?: boolean;
  memoryIsCausal?: boolean;
}

/** Self-attention, attention over the encoder's result, and a feed-forward block. */
export class TransformerDecoderLayer extends Module<[tgt: Tensor, memory: Tensor, masks?: DecoderMasks]> {
  self_attn: MultiheadAttention;
  multihead_attn: MultiheadAttention;
  linear1: Linear;
  dropout: Dropout;
  linear2: Linear;
  norm1: LayerNorm;
  norm2: LayerNorm;
  norm3: LayerNorm;
  dropout1: Dropout;
  dropout2: Dropout;
  dropout3: Dropout;
  private readonly activation: (x: Tensor) => Tensor;
  private readonly normFirst: boolean;
  private readonly madeWith: LayerArguments;

  constructor(dModel: number, nhead: number, options: TransformerLayerOptions = {}) {
    super();
    const s = settingsOf('TransformerDecoderLayer', options);
    this.madeWith = [dModel, nhead, options];
    this.self_attn = new MultiheadAttention(dModel, nhead, s.attention);
    this.multihead_attn = new MultiheadAttention(dModel, nhead, s.attention);
    this.linear1 = new Linear(dModel, s.dimFeedforward, s.linear);
    this.dropout = new Dropout(s.dropout);
    this.linear2 = new Linear(s.dimFeedforward, dModel, s.linear);
    this.norm1 = new LayerNorm(dModel, s.norm);
    this.norm2 = new LayerNorm(dModel, s.norm);
    this.norm3 = new LayerNorm(dModel, s.norm);
    this.dropout1 = new Dropout(s.dropout);
    this.dropout2 = new Dropout(s.dropout);
    this.dropout3 = new Dropout(s.dropout);
    this.activation = s.activation;
    this.normFirst = s.normFirst;
  }

  /** A layer of its own with the same values; what PyTorch's `copy.deepcopy` gives. */
  copy(): TransformerDecoderLayer {
    return withStateOf(new TransformerDecoderLayer(...this.madeWith), this);
  }

  forward(tgt: Tensor, memory: Tensor, masks: DecoderMasks = {}): Tensor {
    requireTensor(tgt, 'TransformerDecoderLayer', 'tgt');
    requireTensor(memory, 'TransformerDecoderLayer', 'memory');
    maskOptionsOf('TransformerDecoderLayer', masks, decoderMasks);
    if (this.normFirst) {
      let x = tgt.add(this.attend(this.norm1(tgt), masks));
      x = x.add(this.attendMemory(this.norm2(x), memory, masks));
      return x.add(this.feedForward(this.norm3(x)));
    }
    let x = this.norm1(tgt.add(this.attend(tgt, masks)));
    x = this.norm2(x.add(this.attendMemory(x, memory, masks)));
    return this.norm3(x.add(this.feedForward(x)));
  }

  private attend(x: Tensor, { tgtMask = null, tgtKeyPaddingMask = null, tgtIsCausal = false }: DecoderMasks): Tensor {
    const [out] = this.self_attn(x, x, x, { attnMask: tgtMask, keyPaddingMask: tgtKeyPaddingMask, needWeights: false, isCausal: tgtIsCausal });
    return this.dropout1(out);
  }

  private attendMemory(x: Tensor, memory: Tensor, { memoryMask = null, memoryKeyPaddingMask = null, memoryIsCausal = false }: DecoderMasks): Tensor {
    const [out] = this.multihead_attn(x, memory, memory, { attnMask: memoryMask, keyPaddingMask: memoryKeyPaddingMask, needWeights: false, isCausal: memoryIsCausal });
    return this.dropout2(out);
  }

  private feedForward(x: Tensor): Tensor {
    return this.dropout3(this.linear2(this.dropout(this.activation(this.linear1(x)))));
  }
}

/** Copies of a layer, as PyTorch makes them, or layers of which each is made anew. A module is a function too. */
function makeLayers<L extends AnyModule & { copy(): L }>(name: string, kind: new (...args: never[]) => L, given: L | (() => L), count: number): ModuleList<L> {
  checkSizesOf(name, { numLayers: count });
  if (given instanceof Module && given.constructor === kind) return new ModuleList(Array.from({ length: count }, () => (given as L).copy()));
  if (typeof given !== 'function' || given instanceof Module) {
    throw new ArgumentError(`${name}: expected an nn.${name}Layer, or a function that makes a layer, such as () => new nn.${name}Layer(64, 4)`, { module: name });
  }
  return new ModuleList(Array.from({ length: count }, () => (given as () => L)()));
}

function checkNorm(name: string, norm: unknown): void {
  if (norm !== null && !(norm instanceof Module)) throw unexpected(name, 'norm', 'a module such as new nn.LayerNorm(64), or null', norm);
}

/** Encoder layers one after another, and a last normalisation if one is given. */
export class TransformerEncoder extends Module<[src: Tensor, masks?: EncoderMasks]> {
  layers: ModuleList<TransformerEncoderLayer>;
  norm: LayerNorm | null;

  /** @param layer - is copied, as in PyTorch; or a function that makes each layer, so that their values differ */
  constructor(layer: TransformerEncoderLayer | (() => TransformerEncoderLayer), numLayers: number, norm: LayerNorm | null = null) {
    super();
    this.layers = makeLayers('TransformerEncoder', TransformerEncoderLayer, layer, numLayers);
    checkNorm('TransformerEncoder', norm);
    this.norm = norm;
  }

  forward(src: Tensor, masks: EncoderMasks = {}): Tensor {
    maskOptionsOf('TransformerEncoder', masks, encoderMasks);
    let x = src;
    for (const layer of this.layers) x = layer(x, masks);
    return this.norm === null ? x : this.norm(x);
  }
}

/** Decoder layers one after another, and a last normalisation if one is given. */
export class TransformerDecoder extends Module<[tgt: Tensor, memory: Tensor, masks?: DecoderMasks]> {
  layers: ModuleList<TransformerDecoderLayer>;
  norm: LayerNorm | null;

  /** @param layer - is copied, as in PyTorch; or a function that makes each layer, so that their values differ */
  constructor(layer: TransformerDecoderLayer | (() => TransformerDecoderLayer), numLayers: number, norm: LayerNorm | null = null) {
    super();
    this.layers = makeLayers('TransformerDecoder', TransformerDecoderLayer, layer, numLayers);
    checkNorm('TransformerDecoder', norm);
    this.norm = norm;
  }

  forward(tgt: Tensor, memory: Tensor, masks: DecoderMasks = {}): Tensor {
    maskOptionsOf('TransformerDecoder', masks, decoderMasks);
    let x = tgt;
    for (const layer of this.layers) x = layer(x, memory, masks);
    return this.norm === null ? x : this.norm(x);
  }
}

/** Options of {@link Transformer}. */
export interface TransformerOptions extends TransformerLayerOptions {
  dModel?: number;
  nhead?: number;
  numEncoderLayers?: number;
  numDecoderLayers?: number;
}

/** Masks of {@link Transformer}. */
export type TransformerMasks = Omit<EncoderMasks, 'isCausal'> & DecoderMasks & { srcIsCausal?: boolean };

/**
 * Encoder and decoder. Shapes: src `[S, N, E]`, tgt `[T, N, E]` (or batch first), result as tgt.
 *
 * @see Vaswani et al., arXiv:1706.03762; parameter names as PyTorch's `nn.Transformer`
 */
export class Transformer extends Module<[src: Tensor, tgt: Tensor, masks?: TransformerMasks]> {
  encoder: TransformerEncoder;
  decoder: TransformerDecoder;
  readonly dModel: number;

  constructor(options: TransformerOptions = {}) {
    super();
    const {
      dModel = 512,
      nhead = 8,
      numEncoderLayers = 6,
      numDecoderLayers = 6,
      ...place
    } = optionsOf('Transformer', options, 'dModel nhead numEncoderLayers numDecoderLayers dimFeedforward dropout activation layerNormEps batchFirst normFirst bias dtype device');
    const norm = (): LayerNorm => new LayerNorm(dModel, settingsOf('Transformer', place).norm);
    this.encoder = new TransformerEncoder(() => new TransformerEncoderLayer(dModel, nhead, place), numEncoderLayers, norm());
    this.decoder = new TransformerDecoder(() => new TransformerDecoderLayer(dModel, nhead, place), numDecoderLayers, norm());
    this.dModel = dModel;
    for (const p of this.parameters()) if (p.ndim > 1) xavierUniform_(p);
  }

  forward(src: Tensor, tgt: Tensor, masks: TransformerMasks = {}): Tensor {
    requireTensor(src, 'Transformer', 'src');
    requireTensor(tgt, 'Transformer', 'tgt');
    if (src.shape[src.ndim - 1] !== this.dModel || tgt.shape[tgt.ndim - 1] !== this.dModel) {
      throw new ArgumentError(`Transformer: the last size of src and tgt must be dModel = ${this.dModel}, got ${src.shape[src.ndim - 1]} and ${tgt.shape[tgt.ndim - 1]}`);
    }
    const {
      srcMask = null,
      srcKeyPaddingMask = null,
      srcIsCausal = false,
      ...masksOfDecoder
    } = maskOptionsOf('Transformer', masks, `srcMask srcKeyPaddingMask srcIsCausal ${decoderMasks}`);
    const memory = this.encoder(src, { srcMask, srcKeyPaddingMask, isCausal: srcIsCausal });
    return this.decoder(tgt, memory, masksOfDecoder);
  }

  /** Minus infinity above the diagonal: each position sees itself and earlier ones. */
  static generateSquareSubsequentMask(size: number, options: TensorOptions = {}): Tensor {
    return triu(full([size, size], Number.NEGATIVE_INFINITY, { dtype: float32, ...options }), { diagonal: 1 });
  }
}
