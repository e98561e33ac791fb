/** Transformers as people write them: what they need beside parameters is made in `forward`. */

import { applyActivationCheckpointing, checkpoint } from '../../../lib/distributed.js';
import {
  arange,
  cat,
  nn,
  rsqrt,
  scaledDotProductAttention,
  silu,
  type Tensor,
} from '../../../lib/index.js';

export const [VOCABULARY, DIM, HEADS, CONTEXT] = [16, 16, 4, 6];
const HEAD_DIM = DIM / HEADS;

export type Tokens = nn.Module<[tokens: Tensor], Tensor>;
type Layer = nn.Module<[x: Tensor], Tensor>;

/** `[b, t, heads * d]` as `[b, heads, t, d]`. */
const byHeads = (x: Tensor, heads: number): Tensor => {
  const [b, t] = x.shape as [number, number];
  return x.view([b, t, heads, HEAD_DIM]).transpose(1, 2);
};
const joined = (y: Tensor): Tensor => y.transpose(1, 2).contiguous().flatten(2);

class GptBlock extends nn.Module<[x: Tensor], Tensor> {
  readonly norm1 = new nn.LayerNorm(DIM);
  readonly query = new nn.Linear(DIM, DIM);
  readonly key = new nn.Linear(DIM, DIM);
  readonly value = new nn.Linear(DIM, DIM);
  readonly project = new nn.Linear(DIM, DIM);
  readonly norm2 = new nn.LayerNorm(DIM);
  readonly mlp = new nn.Sequential(
    new nn.Linear(DIM, 2 * DIM),
    new nn.GELU(),
    new nn.Linear(2 * DIM, DIM),
  );
  private readonly dropout: number;

  constructor(dropout: number) {
    super();
    this.dropout = dropout;
  }

  forward(x: Tensor): Tensor {
    const y = this.norm1(x);
    const [q, k, v] = [this.query, this.key, this.value].map((f) => byHeads(f(y), HEADS));
    const attended = scaledDotProductAttention(q!, k!, v!, null, this.dropout, true);
    const z = x.add(this.project(joined(attended)));
    return z.add(this.mlp(this.norm2(z)));
  }
}

class Gpt extends nn.Module<[tokens: Tensor], Tensor> {
  readonly tokens = new nn.Embedding(VOCABULARY, DIM);
  readonly positions = new nn.Embedding(CONTEXT, DIM);
  readonly blocks: nn.ModuleList<Layer>;
  readonly norm = new nn.LayerNorm(DIM);
  readonly head = new nn.Linear(DIM, VOCABULARY, { bias: false });

  constructor(dropout: number) {
    super();
    this.blocks = new nn.ModuleList([new GptBlock(dropout), new GptBlock(dropout)]);
    this.head.weight = this.tokens.weight;
  }

  forward(tokens: Tensor): Tensor {
    const positions = arange(0, tokens.shape[1]!, 1, { device: tokens.device });
    let x = this.tokens(tokens).add(this.positions(positions));
    for (const block of this.blocks) x = block(x);
    return this.head(this.norm(x));
  }
}

class RmsNorm extends nn.Module<[x: Tensor], Tensor> {
  readonly weight = new nn.Parameter(arange(1, DIM + 1).div(DIM));

  forward(x: Tensor): Tensor {
    return x.mul(rsqrt(x.square().mean(-1, true).add(1e-5))).mul(this.weight);
  }
}

/** The cosines and sines of positions. */
function rotary(length: number): readonly [cos: Tensor, sin: Tensor] {
  const rates = arange(0, HEAD_DIM, 2).div(HEAD_DIM).mul(-Math.log(10_000)).exp();
  const angles = arange(0, length).unsqueeze(1).mul(rates.unsqueeze(0));
  const both = cat([angles, angles], 1);
  return [both.cos(), both.sin()];
}

function rotated(x: Tensor, [cos, sin]: readonly [Tensor, Tensor]): Tensor {
  const [first, second] = x.chunk(2, -1) as [Tensor, Tensor];
  return x.mul(cos).add(cat([second.neg(), first], -1).mul(sin));
}

class LlamaBlock extends nn.Module<[x: Tensor], Tensor> {
  readonly norm1 = new RmsNorm();
  readonly query = new nn.Linear(DIM, DIM, { bias: false });
  readonly key = new nn.Linear(DIM, DIM / 2, { bias: false });
  readonly value = new nn.Linear(DIM, DIM / 2, { bias: false });
  readonly output = new nn.Linear(DIM, DIM, { bias: false });
  readonly norm2 = new RmsNorm();
  readonly gate = new nn.Linear(DIM, 2 * DIM, { bias: false });
  readonly up = new nn.Linear(DIM, 2 * DIM, { bias: false });
  readonly down = new nn.Linear(2 * DIM, DIM, { bias: false });

  forward(x: Tensor): Tensor {
    const y = this.norm1(x);
    const table = rotary(x.shape[1]!);
    const q = rotated(byHeads(this.query(y), HEADS), table);
    const k = rotated(byHeads(this.key(y), HEADS / 2), table);
    const v = byHeads(this.value(y), HEADS / 2);
    const attended = scaledDotProductAttention(q, k, v, null, 0, true, { enableGqa: true });
    const z = x.add(this.output(joined(attended)));
    const w = this.norm2(z);
    return z.add(this.down(silu(this.gate(w)).mul(this.up(w))));
  }
}

class Llama extends nn.Module<[tokens: Tensor], Tensor> {
  readonly tokens = new nn.Embedding(VOCABULARY, DIM);
  readonly layers = new nn.ModuleList([new LlamaBlock(), new LlamaBlock()]);
  readonly norm = new RmsNorm();
  readonly head = new nn.Linear(DIM, VOCABULARY, { bias: false });

  forward(tokens: Tensor): Tensor {
    let x = this.tokens(tokens);
    for (const layer of this.layers) x = layer(x);
    return this.head(this.norm(x));
  }
}

/** The encoder of the library, which gets its positions and its mask from `forward`. */
class Encoder extends nn.Module<[tokens: Tensor], Tensor> {
  readonly tokens = new nn.Embedding(VOCABULARY, DIM);
  readonly positions = new nn.Embedding(CONTEXT, DIM);
  readonly encoder: nn.TransformerEncoder;
  readonly head = new nn.Linear(DIM, VOCABULARY);

  constructor(dropout: number) {
    super();
    const options = { dimFeedforward: 2 * DIM, dropout, batchFirst: true };
    this.encoder = new nn.TransformerEncoder(
      new nn.TransformerEncoderLayer(DIM, HEADS, options),
      2,
    );
  }

  forward(tokens: Tensor): Tensor {
    const length = tokens.shape[1]!;
    const x = this.tokens(tokens).add(this.positions(arange(0, length)));
    return this.head(
      this.encoder(x, { mask: nn.Transformer.generateSquareSubsequentMask(length) }),
    );
  }
}

/** How a model recomputes: not at all, by wrapped blocks, or by `checkpoint` around the model. */
export type Recomputation = 'none' | 'blocks' | 'model';
export const RECOMPUTATIONS: readonly Recomputation[] = ['none', 'blocks', 'model'];

const isBlock = (module: nn.AnyModule): boolean =>
  module instanceof GptBlock ||
  module instanceof LlamaBlock ||
  module instanceof nn.TransformerEncoderLayer;

class Checkpointed extends nn.Module<[tokens: Tensor], Tensor> {
  readonly inner: Tokens;

  constructor(inner: Tokens) {
    super();
    this.inner = inner;
  }

  forward(tokens: Tensor): Tensor {
    return checkpoint((t: Tensor) => this.inner(t), tokens);
  }
}

export const TRANSFORMERS: Readonly<Record<string, (dropout?: number) => Tokens>> = {
  'a GPT': (dropout = 0) => new Gpt(dropout),
  'a Llama': () => new Llama(),
  "the library's TransformerEncoder": (dropout = 0) => new Encoder(dropout),
};

/** A model that recomputes. */
export function recomputing(model: Tokens, how: Recomputation): Tokens {
  if (how === 'model') return new Checkpointed(model);
  if (how === 'blocks') applyActivationCheckpointing(model, { checkFn: isBlock });
  return model;
}
