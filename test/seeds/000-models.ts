/** The models of PyTorch's test/distributed/_composable/fsdp/test_fully_shard_compile.py. */
import { arange, gelu, nn, type Tensor } from '../../lib/index.js';

/** Two layers and two activations. */
export class Mlp extends nn.Module {
  inProj: nn.Linear;
  outProj: nn.Linear;
  constructor(dim: number) {
    super();
    this.inProj = new nn.Linear(dim, 4 * dim);
    this.outProj = new nn.Linear(4 * dim, dim);
  }
  forward(x: Tensor): Tensor {
    return this.outProj(this.inProj(x).relu()).relu();
  }
}

const HIDDEN = 16;

export function simpleMlp(): nn.Sequential {
  return new nn.Sequential(
    new nn.Linear(HIDDEN, HIDDEN),
    new nn.ReLU(),
    new nn.Linear(HIDDEN, HIDDEN),
    new nn.ReLU(),
    new nn.Linear(HIDDEN, HIDDEN),
  );
}

const [DIM, HEADS, VOCABULARY, LENGTH, DROPOUT] = [16, 4, 8, 16, 0.1];

class Attention extends nn.Module {
  wq = new nn.Linear(DIM, DIM, { bias: false });
  wk = new nn.Linear(DIM, DIM, { bias: false });
  wv = new nn.Linear(DIM, DIM, { bias: false });
  wo = new nn.Linear(DIM, DIM, { bias: false });
  residDropout = new nn.Dropout(DROPOUT);
  forward(x: Tensor): Tensor {
    const [batch, length] = x.shape as [number, number];
    const heads = (t: Tensor): Tensor =>
      t.view([batch, length, HEADS, DIM / HEADS]).transpose(1, 2);
    const attended = nn.functional.scaledDotProductAttention(
      heads(this.wq(x)),
      heads(this.wk(x)),
      heads(this.wv(x)),
      { dropoutP: this.training ? DROPOUT : 0, isCausal: true },
    );
    const joined = attended.transpose(1, 2).contiguous().view([batch, length, DIM]);
    return this.residDropout(this.wo(joined));
  }
}

class FeedForward extends nn.Module {
  w1 = new nn.Linear(DIM, 4 * DIM);
  w2 = new nn.Linear(4 * DIM, DIM);
  residDropout = new nn.Dropout(DROPOUT);
  forward(x: Tensor): Tensor {
    return this.residDropout(this.w2(gelu(this.w1(x))));
  }
}

class Block extends nn.Module {
  attentionNorm = new nn.LayerNorm(DIM);
  attention = new Attention();
  ffnNorm = new nn.LayerNorm(DIM);
  feedForward = new FeedForward();
  forward(x: Tensor): Tensor {
    const h = x.add(this.attention(this.attentionNorm(x)));
    return h.add(this.feedForward(this.ffnNorm(h)));
  }
}

/** Two blocks, and an output that shares the weight of the embedding. */
export class Transformer extends nn.Module {
  tokEmbeddings = new nn.Embedding(VOCABULARY, DIM);
  posEmbeddings = new nn.Embedding(LENGTH, DIM);
  dropout = new nn.Dropout(DROPOUT);
  layers = new nn.ModuleList([new Block(), new Block()]);
  norm = new nn.LayerNorm(DIM);
  output = new nn.Linear(DIM, VOCABULARY, { bias: false });
  constructor() {
    super();
    this.output.weight = this.tokEmbeddings.weight;
  }
  forward(tokens: Tensor): Tensor {
    const positions = arange(tokens.shape[1] as number);
    let h = this.dropout(this.tokEmbeddings(tokens).add(this.posEmbeddings(positions)));
    for (const layer of this.layers) h = layer(h);
    return this.output(this.norm(h)).float();
  }
}
