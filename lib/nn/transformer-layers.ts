/** The encoder and decoder layers of a transformer, and the checks of their masks. */
import { withDevice } from '../core/device.js';
import { checkFlag, checkOneOf, checkSizesOf } from '../core/options.js';
import { type ArgumentsOf, defineArguments } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { gelu, relu } from '../ops/activation.js';
import { requireTensor } from '../ops/operand.js';
import { MultiheadAttention } from './attention.js';
import { checkMaskTypes } from './attention-masks.js';
import { Dropout, type LayerOptions, Linear } from './layers.js';
import { type AnyModule, Module } from './module.js';
import { LayerNorm } from './normalization.js';

/** Activation between the two linear layers of a feed-forward block. */
export type Activation = 'relu' | 'gelu' | ((x: Tensor) => Tensor);

/** Settings of a layer, under PyTorch's names. */
export interface LayerSettings {
  dimFeedforward: number;
  dropout: number;
  activation: Activation;
  layerNormEps: number;
  batchFirst: boolean;
  /** Normalise before each block (pre-norm) instead of after it. */
  normFirst: boolean;
  bias: boolean;
  place: LayerOptions;
}

const layerArguments = (name: string) =>
  defineArguments(
    `${name}(dModel, nhead, dimFeedforward, dropout, activation, layerNormEps, batchFirst, normFirst, bias, *, device, dtype)`,
    (
      dModel: number,
      nhead: number,
      dimFeedforward = 2048,
      dropout = 0.1,
      activation: Activation = 'relu',
      layerNormEps = 1e-5,
      batchFirst = false,
      normFirst = false,
      bias = true,
      place: LayerOptions = {},
    ) => ({
      dModel,
      nhead,
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
    }),
  );

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

export function settingsOf(
  op: string,
  {
    dimFeedforward,
    dropout,
    activation,
    layerNormEps,
    batchFirst,
    normFirst,
    bias,
    place,
  }: LayerSettings,
): Settings {
  checkSizesOf(op, { dimFeedforward });
  for (const [name, flag] of Object.entries({ batchFirst, normFirst, bias }))
    checkFlag(op, name, flag);
  if (typeof activation !== 'function')
    checkOneOf(op, 'activation', activation, Object.keys(activations));
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

/** A new module with the values, dtypes, devices, placements and training mode of another. */
function copyOf<M extends AnyModule>(other: M, make: () => M): M {
  // Of layers on meta, the copy takes no memory either.
  const isMeta = [...other.parameters()].some((p) => p.isMeta);
  const module = isMeta ? withDevice('meta', make) : make();
  for (const dtype of new Set([...other.parameters()].map((p) => p.dtype))) module.to(dtype);
  for (const device of new Set([...other.parameters()].map((p) => p.device)))
    if ([...module.parameters()].some((p) => p.device !== device)) module.toEmpty(device);
  const own = new Map(module.namedParameters());
  for (const [name, p] of other.namedParameters())
    if (p.sharding !== null) (own.get(name) as Tensor).data = p.detach().clone();
  module.loadStateDict(other.stateDict());
  return module.train(other.training) as M;
}

/** Masks of an encoder layer: bool (true: leave out), or floating and added to the scores. */
export interface EncoderMasks {
  /** The mask of attention; null for none. */
  srcMask: Tensor | null;
  /** The mask of padded keys; null for none. */
  srcKeyPaddingMask: Tensor | null;
  /** Whether each position sees only itself and earlier ones. */
  isCausal: boolean;
}

const encoderLayerArguments = layerArguments('TransformerEncoderLayer');
const encoderLayerCall = defineArguments(
  'TransformerEncoderLayer(src, /, srcMask, srcKeyPaddingMask, isCausal)',
  (
    src: Tensor,
    srcMask: Tensor | null = null,
    srcKeyPaddingMask: Tensor | null = null,
    isCausal = false,
  ) => ({ src, masks: { srcMask, srcKeyPaddingMask, isCausal } }),
);

/** Self-attention and a feed-forward block, each with a residual connection and a normalisation. */
export class TransformerEncoderLayer extends Module<ArgumentsOf<typeof encoderLayerCall>> {
  /** Attention of the sequence to itself. */
  self_attn: MultiheadAttention;
  /** The first linear layer of the feed-forward block. */
  linear1: Linear;
  /** Dropout inside the feed-forward block. */
  dropout: Dropout;
  /** The second linear layer of the feed-forward block. */
  linear2: Linear;
  /** The norm of the first block. */
  norm1: LayerNorm;
  /** The norm of the second block. */
  norm2: LayerNorm;
  /** Dropout after the first block. */
  dropout1: Dropout;
  /** Dropout after the second block. */
  dropout2: Dropout;
  private readonly activation: (x: Tensor) => Tensor;
  private readonly normFirst: boolean;
  private readonly constructorArguments: ArgumentsOf<typeof encoderLayerArguments>;

  constructor(...args: ArgumentsOf<typeof encoderLayerArguments>) {
    super();
    const { dModel, nhead, layer } = encoderLayerArguments(...args);
    const s = settingsOf('TransformerEncoderLayer', layer);
    this.constructorArguments = args;
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

  /** A deep copy of the layer, as PyTorch's `copy.deepcopy` makes it. */
  copy(): TransformerEncoderLayer {
    return copyOf(this, () => new TransformerEncoderLayer(...this.constructorArguments));
  }

  forward(...args: ArgumentsOf<typeof encoderLayerCall>): Tensor {
    const { src, masks } = encoderLayerCall(...args);
    requireTensor(src, 'TransformerEncoderLayer', 'src');
    checkEncoderMasks('TransformerEncoderLayer', masks);
    if (this.normFirst) {
      const x = src.add(this.attend(this.norm1(src), masks));
      return x.add(this.feedForward(this.norm2(x)));
    }
    const x = this.norm1(src.add(this.attend(src, masks)));
    return this.norm2(x.add(this.feedForward(x)));
  }

  private attend(x: Tensor, { srcMask, srcKeyPaddingMask, isCausal }: EncoderMasks): Tensor {
    const [out] = this.self_attn(x, x, x, {
      attnMask: srcMask,
      keyPaddingMask: srcKeyPaddingMask,
      needWeights: false,
      isCausal,
    });
    return this.dropout1(out);
  }

  private feedForward(x: Tensor): Tensor {
    return this.dropout2(this.linear2(this.dropout(this.activation(this.linear1(x)))));
  }
}

/** Masks of a decoder layer: bool (true: leave out), or floating and added to the scores. */
export interface DecoderMasks {
  /** The mask of attention to the target; null for none. */
  tgtMask: Tensor | null;
  /** The mask of attention to the memory; null for none. */
  memoryMask: Tensor | null;
  /** The mask of padded positions of the target; null for none. */
  tgtKeyPaddingMask: Tensor | null;
  /** The mask of padded positions of the memory; null for none. */
  memoryKeyPaddingMask: Tensor | null;
  /** Whether each target position sees only itself and earlier ones. */
  tgtIsCausal: boolean;
  /** Whether each target position sees only memory up to its own place. */
  memoryIsCausal: boolean;
}

/** @throws ArgumentError unless masks are tensors or null, and flags true or false */
export function checkEncoderMasks(
  op: string,
  { srcMask, srcKeyPaddingMask, isCausal }: EncoderMasks,
): void {
  checkMaskTypes(op, { srcMask, srcKeyPaddingMask }, { isCausal });
}

/** @throws ArgumentError unless masks are tensors or null, and flags true or false */
export function checkDecoderMasks(
  op: string,
  { tgtMask, memoryMask, tgtKeyPaddingMask, memoryKeyPaddingMask, ...flags }: DecoderMasks,
): void {
  checkMaskTypes(op, { tgtMask, memoryMask, tgtKeyPaddingMask, memoryKeyPaddingMask }, flags);
}

const decoderLayerArguments = layerArguments('TransformerDecoderLayer');
export const decoderCall = (name: string) =>
  defineArguments(
    `${name}(tgt, memory, /, tgtMask, memoryMask, tgtKeyPaddingMask, memoryKeyPaddingMask, tgtIsCausal, memoryIsCausal)`,
    (
      tgt: Tensor,
      memory: Tensor,
      tgtMask: Tensor | null = null,
      memoryMask: Tensor | null = null,
      tgtKeyPaddingMask: Tensor | null = null,
      memoryKeyPaddingMask: Tensor | null = null,
      tgtIsCausal = false,
      memoryIsCausal = false,
    ) => ({
      tgt,
      memory,
      masks: {
        tgtMask,
        memoryMask,
        tgtKeyPaddingMask,
        memoryKeyPaddingMask,
        tgtIsCausal,
        memoryIsCausal,
      },
    }),
  );
const decoderLayerCall = decoderCall('TransformerDecoderLayer');

/** Self-attention, cross-attention to the encoder's result, and a feed-forward block. */
export class TransformerDecoderLayer extends Module<ArgumentsOf<typeof decoderLayerCall>> {
  /** Attention of the sequence to itself. */
  self_attn: MultiheadAttention;
  /** Attention of the sequence to the memory. */
  multihead_attn: MultiheadAttention;
  /** The first linear layer of the feed-forward block. */
  linear1: Linear;
  /** Dropout inside the feed-forward block. */
  dropout: Dropout;
  /** The second linear layer of the feed-forward block. */
  linear2: Linear;
  /** The norm of the first block. */
  norm1: LayerNorm;
  /** The norm of the second block. */
  norm2: LayerNorm;
  /** The norm of the third block. */
  norm3: LayerNorm;
  /** Dropout after the first block. */
  dropout1: Dropout;
  /** Dropout after the second block. */
  dropout2: Dropout;
  /** Dropout after the third block. */
  dropout3: Dropout;
  private readonly activation: (x: Tensor) => Tensor;
  private readonly normFirst: boolean;
  private readonly constructorArguments: ArgumentsOf<typeof decoderLayerArguments>;

  constructor(...args: ArgumentsOf<typeof decoderLayerArguments>) {
    super();
    const { dModel, nhead, layer } = decoderLayerArguments(...args);
    const s = settingsOf('TransformerDecoderLayer', layer);
    this.constructorArguments = args;
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

  /** A deep copy of the layer, as PyTorch's `copy.deepcopy` makes it. */
  copy(): TransformerDecoderLayer {
    return copyOf(this, () => new TransformerDecoderLayer(...this.constructorArguments));
  }

  forward(...args: ArgumentsOf<typeof decoderLayerCall>): Tensor {
    const { tgt, memory, masks } = decoderLayerCall(...args);
    requireTensor(tgt, 'TransformerDecoderLayer', 'tgt');
    requireTensor(memory, 'TransformerDecoderLayer', 'memory');
    checkDecoderMasks('TransformerDecoderLayer', masks);
    if (this.normFirst) {
      let x = tgt.add(this.attend(this.norm1(tgt), masks));
      x = x.add(this.attendMemory(this.norm2(x), memory, masks));
      return x.add(this.feedForward(this.norm3(x)));
    }
    let x = this.norm1(tgt.add(this.attend(tgt, masks)));
    x = this.norm2(x.add(this.attendMemory(x, memory, masks)));
    return this.norm3(x.add(this.feedForward(x)));
  }

  private attend(x: Tensor, { tgtMask, tgtKeyPaddingMask, tgtIsCausal }: DecoderMasks): Tensor {
    const [out] = this.self_attn(x, x, x, {
      attnMask: tgtMask,
      keyPaddingMask: tgtKeyPaddingMask,
      needWeights: false,
      isCausal: tgtIsCausal,
    });
    return this.dropout1(out);
  }

  private attendMemory(
    x: Tensor,
    memory: Tensor,
    { memoryMask, memoryKeyPaddingMask, memoryIsCausal }: DecoderMasks,
  ): Tensor {
    const [out] = this.multihead_attn(x, memory, memory, {
      attnMask: memoryMask,
      keyPaddingMask: memoryKeyPaddingMask,
      needWeights: false,
      isCausal: memoryIsCausal,
    });
    return this.dropout2(out);
  }

  private feedForward(x: Tensor): Tensor {
    return this.dropout3(this.linear2(this.dropout(this.activation(this.linear1(x)))));
  }
}
