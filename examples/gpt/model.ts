/** A small GPT. Shapes: B batch, T time, D features, H heads, V vocabulary. */
import {
  arange,
  int64,
  nn,
  noGrad,
  scaledDotProductAttention,
  type Tensor,
} from '../../lib/index.js';

export interface GptConfig {
  vocabSize: number;
  contextLength: number;
  numLayers: number;
  numHeads: number;
  dModel: number;
}

class Attention extends nn.Module {
  readonly numHeads: number;
  qkv: nn.Linear;
  proj: nn.Linear;

  constructor({ dModel, numHeads }: GptConfig) {
    super();
    this.numHeads = numHeads;
    this.qkv = new nn.Linear(dModel, 3 * dModel);
    this.proj = new nn.Linear(dModel, dModel);
  }

  forward(x: Tensor): Tensor {
    const [b, t, d] = x.shape as [number, number, number];
    // Heads come first, so that the local shard of the product has whole heads; a rank with all of
    // them has H.
    const heads = this.qkv(x).reshape(b, t, -1, 3, d / this.numHeads); // [B, T, H, 3, D/H]
    // [B, H, T, D/H]
    const [q, k, v] = heads.permute(3, 0, 2, 1, 4).unbind(0) as [Tensor, Tensor, Tensor];
    const out = scaledDotProductAttention(q, k, v, { isCausal: true });
    return this.proj(out.transpose(1, 2).flatten(2));
  }
}

class Block extends nn.Module {
  norm1: nn.LayerNorm;
  attention: Attention;
  norm2: nn.LayerNorm;
  mlp: nn.Sequential;

  constructor(config: GptConfig) {
    super();
    const { dModel } = config;
    this.norm1 = new nn.LayerNorm(dModel);
    this.attention = new Attention(config);
    this.norm2 = new nn.LayerNorm(dModel);
    this.mlp = new nn.Sequential(
      new nn.Linear(dModel, 4 * dModel),
      new nn.GELU({ approximate: 'tanh' }),
      new nn.Linear(4 * dModel, dModel),
    );
  }

  forward(x: Tensor): Tensor {
    const attended = x.add(this.attention(this.norm1(x)));
    return attended.add(this.mlp(this.norm2(attended)));
  }
}

/** Tokens `[B, T]` to logits `[B, T, V]`. */
export class Gpt extends nn.Module {
  readonly config: GptConfig;
  tokens: nn.Embedding;
  positions: nn.Embedding;
  blocks: nn.ModuleList<Block>;
  norm: nn.LayerNorm;
  head: nn.Linear;

  constructor(config: GptConfig) {
    super();
    this.config = config;
    this.tokens = new nn.Embedding(config.vocabSize, config.dModel);
    this.positions = new nn.Embedding(config.contextLength, config.dModel);
    this.blocks = new nn.ModuleList(
      Array.from({ length: config.numLayers }, () => new Block(config)),
    );
    this.norm = new nn.LayerNorm(config.dModel);
    this.head = new nn.Linear(config.dModel, config.vocabSize, { bias: false });
    noGrad(() => {
      for (const [name, p] of this.namedParameters()) {
        if (p.ndim > 1)
          p.normal_(
            0,
            name.endsWith('proj.weight') || name.endsWith('mlp.2.weight')
              ? 0.02 / Math.sqrt(2 * config.numLayers)
              : 0.02,
          );
      }
    });
  }

  forward(ids: Tensor): Tensor {
    const t = ids.size(1);
    let x = this.tokens(ids).add(this.positions(arange(t, { dtype: int64, device: ids.device })));
    for (const block of this.blocks) x = block(x);
    return this.head(this.norm(x));
  }
}
