/** The GPT that training is measured with, the same as PyTorch's in the reference scripts. */
import { arange, type DeviceName, nn, scope, type Tensor } from '../lib/index.js';

export const SIZES = {
  '124m': { vocabulary: 50304, width: 768, heads: 12, hidden: 3072, layers: 12, context: 1024 },
  '1.5b': { vocabulary: 50304, width: 1600, heads: 25, hidden: 6400, layers: 48, context: 1024 },
  '8b': { vocabulary: 128256, width: 4096, heads: 32, hidden: 16384, layers: 32, context: 4096 },
} as const;
export interface Size {
  readonly vocabulary: number;
  readonly width: number;
  readonly heads: number;
  readonly hidden: number;
  readonly layers: number;
  readonly context: number;
}

class Block extends nn.Module {
  readonly n1: nn.LayerNorm;
  readonly n2: nn.LayerNorm;
  readonly qkv: nn.Linear;
  readonly out: nn.Linear;
  readonly up: nn.Linear;
  readonly down: nn.Linear;
  private readonly heads: number;

  constructor({ width, heads, hidden }: Size, device: DeviceName) {
    super();
    const linear = (from: number, to: number): nn.Linear =>
      new nn.Linear(from, to, { bias: false, device });
    this.heads = heads;
    this.n1 = new nn.LayerNorm(width, { device });
    this.n2 = new nn.LayerNorm(width, { device });
    this.qkv = linear(width, 3 * width);
    this.out = linear(width, width);
    this.up = linear(width, hidden);
    this.down = linear(hidden, width);
  }

  override forward(x: Tensor): Tensor {
    const [batch, length, width] = x.shape as [number, number, number];
    const parts = this.qkv(this.n1(x))
      .view([batch, length, 3, this.heads, width / this.heads])
      .permute([2, 0, 3, 1, 4]);
    const [q, k, v] = parts.unbind(0) as [Tensor, Tensor, Tensor];
    const attended = nn.functional
      .scaledDotProductAttention(q, k, v, { isCausal: true })
      .transpose(1, 2)
      .reshape([batch, length, width]);
    const summed = x.add(this.out(attended));
    return summed.add(
      this.down(nn.functional.gelu(this.up(this.n2(summed)), { approximate: 'tanh' })),
    );
  }
}

export class Gpt extends nn.Module<[input: Tensor, target: Tensor], Tensor> {
  readonly tokens: nn.Embedding;
  readonly positions: nn.Embedding;
  readonly layers: nn.ModuleList<Block>;
  readonly norm: nn.LayerNorm;
  readonly head: nn.Linear;
  /** Whether what a layer makes and backward does not need is freed with the layer. */
  scopes = true;

  constructor(size: Size, device: DeviceName) {
    super();
    this.tokens = new nn.Embedding(size.vocabulary, size.width, { device });
    this.positions = new nn.Embedding(size.context, size.width, { device });
    this.layers = new nn.ModuleList(
      Array.from({ length: size.layers }, () => new Block(size, device)),
    );
    this.norm = new nn.LayerNorm(size.width, { device });
    this.head = new nn.Linear(size.width, size.vocabulary, { bias: false, device });
  }

  override forward(input: Tensor, target: Tensor): Tensor {
    return nn.functional.crossEntropy(this.logits(input).flatten(0, 1), target.flatten());
  }

  protected logits(input: Tensor): Tensor {
    let x = this.tokens(input).add(this.positions(arange(input.size(1), { device: input.device })));
    for (const layer of this.layers) x = this.scopes ? scope(() => layer(x)) : layer(x);
    return this.head(this.norm(x));
  }
}
