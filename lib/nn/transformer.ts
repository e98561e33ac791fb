/**
 * The transformer of "Attention is all you need". With equal weights it computes PyTorch's values.
 */
import { float32 } from '../core/dtype.js';
import { ArgumentError } from '../core/errors.js';
import { checkSizesOf, unexpected } from '../core/options.js';
import { type ArgumentsOf, defineArguments } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { full, type TensorOptions } from '../ops/factories.js';
import { requireTensor } from '../ops/operand.js';
import { triu } from '../ops/triangles.js';
import { checkMaskTypes } from './attention-masks.js';
import { ModuleList } from './containers.js';
import { xavierUniform_ } from './init.js';
import type { LayerOptions } from './layers.js';
import { type AnyModule, Module } from './module.js';
import { LayerNorm } from './normalization.js';
import {
  type Activation,
  checkDecoderMasks,
  checkEncoderMasks,
  decoderCall,
  type LayerSettings,
  settingsOf,
  TransformerDecoderLayer,
  TransformerEncoderLayer,
} from './transformer-layers.js';

/**
 * Copies a layer `count` times, as PyTorch does, or calls a function that returns one. A module is
 * callable, too, so it is tested first.
 */
function makeLayers<L extends AnyModule & { copy(): L }>(
  name: string,
  kind: { prototype: L },
  given: L | (() => L),
  count: number,
): ModuleList<L> {
  checkSizesOf(name, { numLayers: count });
  if (given instanceof Module && given.constructor === kind)
    return new ModuleList(Array.from({ length: count }, () => (given as L).copy()));
  if (typeof given !== 'function' || given instanceof Module) {
    throw new ArgumentError(
      `${name}: expected an nn.${name}Layer, or a function that returns one, such as () => ` +
        `new nn.${name}Layer(64, 4)`,
      { module: name },
    );
  }
  return new ModuleList(Array.from({ length: count }, () => (given as () => L)()));
}

function checkNorm(name: string, norm: unknown): void {
  if (norm !== null && !(norm instanceof Module))
    throw unexpected(name, 'norm', 'a module such as new nn.LayerNorm(64), or null', norm);
}

type EncoderLayers = TransformerEncoderLayer | (() => TransformerEncoderLayer);
type DecoderLayers = TransformerDecoderLayer | (() => TransformerDecoderLayer);

const encoderArguments = defineArguments(
  'TransformerEncoder(encoderLayer, numLayers, norm)',
  (encoderLayer: EncoderLayers, numLayers: number, norm: LayerNorm | null = null) => ({
    encoderLayer,
    numLayers,
    norm,
  }),
);
/** PyTorch names this argument `mask` here and `srcMask` in the layer; both names are accepted. */
const encoderCall = defineArguments(
  'TransformerEncoder(src, /, mask, srcKeyPaddingMask, isCausal, *, srcMask)',
  (
    src: Tensor,
    mask: Tensor | null = null,
    srcKeyPaddingMask: Tensor | null = null,
    isCausal = false,
    { srcMask = null }: { srcMask?: Tensor | null } = {},
  ) => {
    if (mask !== null && srcMask !== null)
      throw new ArgumentError(
        'TransformerEncoder: mask and srcMask name the same argument; give one of them',
      );
    return { src, masks: { srcMask: mask ?? srcMask, srcKeyPaddingMask, isCausal } };
  },
);

/** A stack of encoder layers with an optional normalisation after the last. */
export class TransformerEncoder extends Module<ArgumentsOf<typeof encoderCall>> {
  /** The layers, in order. */
  layers: ModuleList<TransformerEncoderLayer>;
  /** The norm after the last layer; null for none. */
  norm: LayerNorm | null;

  /**
   * `encoderLayer` is a layer, which is copied as in PyTorch, or a function that returns a new
   * layer for each position.
   */
  constructor(...args: ArgumentsOf<typeof encoderArguments>) {
    super();
    const { encoderLayer, numLayers, norm } = encoderArguments(...args);
    this.layers = makeLayers(
      'TransformerEncoder',
      TransformerEncoderLayer,
      encoderLayer,
      numLayers,
    );
    checkNorm('TransformerEncoder', norm);
    this.norm = norm;
  }

  forward(...args: ArgumentsOf<typeof encoderCall>): Tensor {
    const { src, masks } = encoderCall(...args);
    checkEncoderMasks('TransformerEncoder', masks);
    let x = src;
    for (const layer of this.layers) x = layer(x, masks);
    return this.norm === null ? x : this.norm(x);
  }
}

const decoderArguments = defineArguments(
  'TransformerDecoder(decoderLayer, numLayers, norm)',
  (decoderLayer: DecoderLayers, numLayers: number, norm: LayerNorm | null = null) => ({
    decoderLayer,
    numLayers,
    norm,
  }),
);
const decoderStackCall = decoderCall('TransformerDecoder');

/** A stack of decoder layers with an optional normalisation after the last. */
export class TransformerDecoder extends Module<ArgumentsOf<typeof decoderStackCall>> {
  /** The layers, in order. */
  layers: ModuleList<TransformerDecoderLayer>;
  /** The norm after the last layer; null for none. */
  norm: LayerNorm | null;

  /**
   * `decoderLayer` is a layer, which is copied as in PyTorch, or a function that returns a new
   * layer for each position.
   */
  constructor(...args: ArgumentsOf<typeof decoderArguments>) {
    super();
    const { decoderLayer, numLayers, norm } = decoderArguments(...args);
    this.layers = makeLayers(
      'TransformerDecoder',
      TransformerDecoderLayer,
      decoderLayer,
      numLayers,
    );
    checkNorm('TransformerDecoder', norm);
    this.norm = norm;
  }

  forward(...args: ArgumentsOf<typeof decoderStackCall>): Tensor {
    const { tgt, memory, masks } = decoderStackCall(...args);
    checkDecoderMasks('TransformerDecoder', masks);
    let x = tgt;
    for (const layer of this.layers) x = layer(x, memory, masks);
    return this.norm === null ? x : this.norm(x);
  }
}

/**
 * After `activation` PyTorch takes a custom encoder and decoder, which are missing here; so the
 * arguments after them are given by name only.
 */
const transformerArguments = defineArguments(
  'Transformer(dModel, nhead, numEncoderLayers, numDecoderLayers, dimFeedforward, dropout, activation, *, layerNormEps, batchFirst, normFirst, bias, device, dtype)',
  (
    dModel = 512,
    nhead = 8,
    numEncoderLayers = 6,
    numDecoderLayers = 6,
    dimFeedforward = 2048,
    dropout = 0.1,
    activation: Activation = 'relu',
    options: Partial<Pick<LayerSettings, 'layerNormEps' | 'batchFirst' | 'normFirst' | 'bias'>> &
      LayerOptions = {},
  ) => {
    const {
      layerNormEps = 1e-5,
      batchFirst = false,
      normFirst = false,
      bias = true,
      ...place
    } = options;
    return {
      dModel,
      nhead,
      numEncoderLayers,
      numDecoderLayers,
      layer: {
        dimFeedforward,
        dropout,
        activation,
        layerNormEps,
        batchFirst,
        normFirst,
        bias,
        place,
      },
    };
  },
);
const transformerCall = defineArguments(
  'Transformer(src, tgt, /, srcMask, tgtMask, memoryMask, srcKeyPaddingMask, tgtKeyPaddingMask, memoryKeyPaddingMask, srcIsCausal, tgtIsCausal, memoryIsCausal)',
  (
    src: Tensor,
    tgt: Tensor,
    srcMask: Tensor | null = null,
    tgtMask: Tensor | null = null,
    memoryMask: Tensor | null = null,
    srcKeyPaddingMask: Tensor | null = null,
    tgtKeyPaddingMask: Tensor | null = null,
    memoryKeyPaddingMask: Tensor | null = null,
    srcIsCausal = false,
    tgtIsCausal = false,
    memoryIsCausal = false,
  ) => ({
    src,
    tgt,
    encoder: { srcMask, srcKeyPaddingMask, isCausal: srcIsCausal },
    decoder: {
      tgtMask,
      memoryMask,
      tgtKeyPaddingMask,
      memoryKeyPaddingMask,
      tgtIsCausal,
      memoryIsCausal,
    },
  }),
);

/**
 * Encoder and decoder. Shapes: src `[S, N, E]`, tgt and result `[T, N, E]` (or batch first).
 *
 * @see Vaswani et al., arXiv:1706.03762; parameter names as PyTorch's `nn.Transformer`
 */
export class Transformer extends Module<ArgumentsOf<typeof transformerCall>> {
  /** The encoder. */
  encoder: TransformerEncoder;
  /** The decoder. */
  decoder: TransformerDecoder;
  /** The number of features. */
  readonly dModel: number;

  constructor(...args: ArgumentsOf<typeof transformerArguments>) {
    super();
    const { dModel, nhead, numEncoderLayers, numDecoderLayers, layer } = transformerArguments(
      ...args,
    );
    const { place, ...settings } = layer;
    const options = { ...settings, ...place };
    const norm = (): LayerNorm => new LayerNorm(dModel, settingsOf('Transformer', layer).norm);
    this.encoder = new TransformerEncoder(
      () => new TransformerEncoderLayer(dModel, nhead, options),
      numEncoderLayers,
      norm(),
    );
    this.decoder = new TransformerDecoder(
      () => new TransformerDecoderLayer(dModel, nhead, options),
      numDecoderLayers,
      norm(),
    );
    this.dModel = dModel;
    this.resetParameters();
  }

  /**
   * Draws all matrices as PyTorch, Xavier uniform. Other parameters stay: layers have a method of
   * the same name.
   */
  resetParameters(): void {
    for (const p of this.parameters()) if (p.ndim > 1) xavierUniform_(p);
  }

  forward(...args: ArgumentsOf<typeof transformerCall>): Tensor {
    const { src, tgt, encoder, decoder } = transformerCall(...args);
    requireTensor(src, 'Transformer', 'src');
    requireTensor(tgt, 'Transformer', 'tgt');
    if (src.sizes[src.ndim - 1] !== this.dModel || tgt.sizes[tgt.ndim - 1] !== this.dModel) {
      throw new ArgumentError(
        `Transformer: the last size of src and tgt must be dModel = ${this.dModel}, got ` +
          `${src.sizes[src.ndim - 1]} and ${tgt.sizes[tgt.ndim - 1]}`,
      );
    }
    checkMaskTypes(
      'Transformer',
      { srcMask: encoder.srcMask, srcKeyPaddingMask: encoder.srcKeyPaddingMask },
      { srcIsCausal: encoder.isCausal },
    );
    checkDecoderMasks('Transformer', decoder);
    return this.decoder(tgt, this.encoder(src, encoder), decoder);
  }

  /**
   * A causal mask: minus infinity above the diagonal, so that no position attends to later ones.
   */
  static generateSquareSubsequentMask(size: number, options: TensorOptions = {}): Tensor {
    return triu(full([size, size], Number.NEGATIVE_INFINITY, { dtype: float32, ...options }), {
      diagonal: 1,
    });
  }
}
