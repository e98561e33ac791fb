/**
 * A Llama. Parameters have the names of Hugging Face in camelCase. Shapes: B batch, T time,
 * D features, H heads, V vocabulary.
 */
import { nn, scaledDotProductAttention, type Tensor } from '../../lib/index.js';
import type { LlamaConfig } from './config.js';
import { type Rotation, rotate, rotationOf } from './rotary.js';

/** Attention in which several heads of queries share one of keys and values. */
class Attention extends nn.Module<[x: Tensor, rotation: Rotation]> {
  readonly headDim: number;
  qProj: nn.Linear;
  kProj: nn.Linear;
  vProj: nn.Linear;
  oProj: nn.Linear;

  constructor(config: LlamaConfig) {
    super();
    const { hiddenSize, headDim, numHeads, numKeyValueHeads, attentionBias: bias } = config;
    this.headDim = headDim;
    this.qProj = new nn.Linear(hiddenSize, numHeads * headDim, { bias });
    this.kProj = new nn.Linear(hiddenSize, numKeyValueHeads * headDim, { bias });
    this.vProj = new nn.Linear(hiddenSize, numKeyValueHeads * headDim, { bias });
    this.oProj = new nn.Linear(numHeads * headDim, hiddenSize, { bias });
  }

  forward(x: Tensor, rotation: Rotation): Tensor {
    const [b, t] = x.shape as [number, number, number];
    const heads = (y: Tensor): Tensor => y.reshape(b, t, -1, this.headDim).transpose(1, 2);
    const q = rotate(heads(this.qProj(x)), rotation);
    const k = rotate(heads(this.kProj(x)), rotation);
    const options = { isCausal: true, enableGqa: true };
    const out = scaledDotProductAttention(q, k, heads(this.vProj(x)), options); // [B, H, T, headDim]
    return this.oProj(out.transpose(1, 2).flatten(2));
  }
}

/** SwiGLU. */
class FeedForward extends nn.Module {
  gateProj: nn.Linear;
  upProj: nn.Linear;
  downProj: nn.Linear;

  constructor({ hiddenSize, intermediateSize, mlpBias: bias }: LlamaConfig) {
    super();
    this.gateProj = new nn.Linear(hiddenSize, intermediateSize, { bias });
    this.upProj = new nn.Linear(hiddenSize, intermediateSize, { bias });
    this.downProj = new nn.Linear(intermediateSize, hiddenSize, { bias });
  }

  forward(x: Tensor): Tensor {
    return this.downProj(nn.functional.silu(this.gateProj(x)).mul(this.upProj(x)));
  }
}

/** A layer of the decoder. */
export class Layer extends nn.Module<[x: Tensor, rotation: Rotation]> {
  inputLayernorm: nn.RMSNorm;
  selfAttn: Attention;
  postAttentionLayernorm: nn.RMSNorm;
  mlp: FeedForward;

  constructor(config: LlamaConfig) {
    super();
    const { hiddenSize, rmsNormEps: eps } = config;
    this.inputLayernorm = new nn.RMSNorm(hiddenSize, { eps });
    this.selfAttn = new Attention(config);
    this.postAttentionLayernorm = new nn.RMSNorm(hiddenSize, { eps });
    this.mlp = new FeedForward(config);
  }

  forward(x: Tensor, rotation: Rotation): Tensor {
    const attended = x.add(this.selfAttn(this.inputLayernorm(x), rotation));
    return attended.add(this.mlp(this.postAttentionLayernorm(attended)));
  }
}

class Decoder extends nn.Module {
  readonly config: LlamaConfig;
  embedTokens: nn.Embedding;
  layers: nn.ModuleList<Layer>;
  norm: nn.RMSNorm;

  constructor(config: LlamaConfig) {
    super();
    this.config = config;
    this.embedTokens = new nn.Embedding(config.vocabSize, config.hiddenSize);
    this.layers = new nn.ModuleList(
      Array.from({ length: config.numLayers }, () => new Layer(config)),
    );
    this.norm = new nn.RMSNorm(config.hiddenSize, { eps: config.rmsNormEps });
  }

  forward(ids: Tensor): Tensor {
    let x = this.embedTokens(ids);
    const [cos, sin] = rotationOf(this.config, ids.size(1), ids.device);
    const rotation: Rotation = [cos.to(x.dtype), sin.to(x.dtype)];
    for (const layer of this.layers) x = layer(x, rotation);
    return this.norm(x);
  }
}

/** Tokens `[B, T]` to logits `[B, T, V]`. */
export class Llama extends nn.Module {
  readonly config: LlamaConfig;
  model: Decoder;
  lmHead: nn.Linear;

  constructor(config: LlamaConfig) {
    super();
    this.config = config;
    this.model = new Decoder(config);
    this.lmHead = new nn.Linear(config.hiddenSize, config.vocabSize, { bias: false });
    if (config.tiedEmbeddings) this.lmHead.weight = this.model.embedTokens.weight;
  }

  forward(ids: Tensor): Tensor {
    return this.lmHead(this.model(ids));
  }
}

/** The name of a parameter in the files of Hugging Face, such as `model.embed_tokens.weight`. */
export function fileName(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
