/**
 * A Llama with its loss, as peer_train.py writes it: grouped heads, SwiGLU, RMSNorm, rotary
 * positions.
 */
import { arange, cat, type DeviceName, float32, nn, scope, type Tensor } from '../../lib/index.js';
import { lossOfRows, type ModelSize } from './job.js';

const BASE = 500_000;

/** Cosines and sines of the positions, `[time, features of a head / 2]` each. */
export function rotationOf(size: ModelSize, device: DeviceName): [cos: Tensor, sin: Tensor] {
  const head = size.width / size.heads;
  const powers = arange(0, head, 2, { dtype: float32, device }).mul(-Math.log(BASE) / head);
  const positions = arange(size.context, { dtype: float32, device }).unsqueeze(1);
  const angles = positions.mul(powers.exp());
  return [angles.cos(), angles.sin()];
}

/** Rotates heads `[batch, heads, time, features]`: feature i is paired with i + features / 2. */
function rotated(x: Tensor, cos: Tensor, sin: Tensor): Tensor {
  const [first, second] = x.chunk(2, -1) as [Tensor, Tensor];
  return cat([first.mul(cos).sub(second.mul(sin)), second.mul(cos).add(first.mul(sin))], -1);
}

class Attention extends nn.Module<[x: Tensor, cos: Tensor, sin: Tensor], Tensor> {
  readonly q: nn.Linear;
  readonly k: nn.Linear;
  readonly v: nn.Linear;
  readonly o: nn.Linear;
  private readonly features: number;

  constructor({ width, heads, kvHeads }: ModelSize, device: DeviceName) {
    super();
    this.features = width / heads;
    const options = { bias: false, device };
    this.q = new nn.Linear(width, width, options);
    this.k = new nn.Linear(width, kvHeads * this.features, options);
    this.v = new nn.Linear(width, kvHeads * this.features, options);
    this.o = new nn.Linear(width, width, options);
  }

  override forward(x: Tensor, cos: Tensor, sin: Tensor): Tensor {
    const [q, k, v] = [this.q(x), this.k(x), this.v(x)].map((y) =>
      y.view([y.size(0), y.size(1), -1, this.features]).transpose(1, 2),
    ) as [Tensor, Tensor, Tensor];
    const attended = nn.functional.scaledDotProductAttention(
      rotated(q, cos, sin),
      rotated(k, cos, sin),
      v,
      { isCausal: true, enableGqa: true },
    );
    return this.o(attended.transpose(1, 2).flatten(2));
  }
}

class FeedForward extends nn.Module<[x: Tensor], Tensor> {
  readonly gate: nn.Linear;
  readonly up: nn.Linear;
  readonly down: nn.Linear;

  constructor({ width, hidden }: ModelSize, device: DeviceName) {
    super();
    this.gate = new nn.Linear(width, hidden, { bias: false, device });
    this.up = new nn.Linear(width, hidden, { bias: false, device });
    this.down = new nn.Linear(hidden, width, { bias: false, device });
  }

  override forward(x: Tensor): Tensor {
    return this.down(nn.functional.silu(this.gate(x)).mul(this.up(x)));
  }
}

class Block extends nn.Module<[x: Tensor, cos: Tensor, sin: Tensor], Tensor> {
  readonly n1: nn.RMSNorm;
  readonly attention: Attention;
  readonly n2: nn.RMSNorm;
  readonly feedForward: FeedForward;

  constructor(size: ModelSize, device: DeviceName) {
    super();
    this.n1 = new nn.RMSNorm(size.width, { eps: 1e-5, device });
    this.attention = new Attention(size, device);
    this.n2 = new nn.RMSNorm(size.width, { eps: 1e-5, device });
    this.feedForward = new FeedForward(size, device);
  }

  override forward(x: Tensor, cos: Tensor, sin: Tensor): Tensor {
    const attended = x.add(this.attention(this.n1(x), cos, sin));
    return attended.add(this.feedForward(this.n2(attended)));
  }
}

type Inputs = [input: Tensor, target: Tensor, cos: Tensor, sin: Tensor];

export class Llama extends nn.Module<Inputs, Tensor> {
  readonly tokens: nn.Embedding;
  readonly layers: nn.ModuleList<Block>;
  readonly norm: nn.RMSNorm;
  readonly head: nn.Linear;
  /** Whether what a layer makes and backward does not need is freed with the layer. */
  scopes = true;

  constructor(size: ModelSize, device: DeviceName) {
    super();
    this.tokens = new nn.Embedding(size.vocabulary, size.width, { device });
    this.layers = new nn.ModuleList(
      Array.from({ length: size.layers }, () => new Block(size, device)),
    );
    this.norm = new nn.RMSNorm(size.width, { eps: 1e-5, device });
    this.head = new nn.Linear(size.width, size.vocabulary, { bias: false, device });
    if (size.tied === true) this.head.weight = this.tokens.weight;
  }

  override forward(input: Tensor, target: Tensor, cos: Tensor, sin: Tensor): Tensor {
    let x = this.tokens(input);
    for (const layer of this.layers)
      x = this.scopes ? scope(() => layer(x, cos, sin)) : layer(x, cos, sin);
    return lossOfRows(this.head(this.norm(x)), target);
  }
}
