/**
 * A training step as a program makes it: the GPT of GPT-2's sizes under bfloat16 autocast, with
 * fused AdamW. Time of the step, of the host, and of the optimizer alone; most memory; strides of
 * the gradients. One JSON object a line.
 *
 *   scripts/compile && node build/compiled/bench/train-step.js [124m | 1.5b] [batch]
 */
import {
  amp,
  arange,
  bfloat16,
  cuda,
  memory,
  nn,
  optim,
  randint,
  scope,
  type Tensor,
} from '../lib/index.js';
import { median } from './figures.js';
import { requireGpu, runProgram } from './program.js';

const SIZES = {
  '124m': { vocabulary: 50304, width: 768, heads: 12, hidden: 3072, layers: 12, context: 1024 },
  '1.5b': { vocabulary: 50304, width: 1600, heads: 25, hidden: 6400, layers: 48, context: 1024 },
} as const;
type Size = (typeof SIZES)[keyof typeof SIZES];

class Block extends nn.Module {
  readonly n1: nn.LayerNorm;
  readonly n2: nn.LayerNorm;
  readonly qkv: nn.Linear;
  readonly out: nn.Linear;
  readonly up: nn.Linear;
  readonly down: nn.Linear;
  private readonly heads: number;

  constructor({ width, heads, hidden }: Size) {
    super();
    const linear = (from: number, to: number): nn.Linear =>
      new nn.Linear(from, to, { bias: false, device: 'cuda' });
    this.heads = heads;
    this.n1 = new nn.LayerNorm(width, { device: 'cuda' });
    this.n2 = new nn.LayerNorm(width, { device: 'cuda' });
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

class Gpt extends nn.Module<[input: Tensor, target: Tensor], Tensor> {
  readonly tokens: nn.Embedding;
  readonly positions: nn.Embedding;
  readonly layers: nn.ModuleList<Block>;
  readonly norm: nn.LayerNorm;
  readonly head: nn.Linear;

  constructor(size: Size) {
    super();
    this.tokens = new nn.Embedding(size.vocabulary, size.width, { device: 'cuda' });
    this.positions = new nn.Embedding(size.context, size.width, { device: 'cuda' });
    this.layers = new nn.ModuleList(Array.from({ length: size.layers }, () => new Block(size)));
    this.norm = new nn.LayerNorm(size.width, { device: 'cuda' });
    this.head = new nn.Linear(size.width, size.vocabulary, { bias: false, device: 'cuda' });
  }

  override forward(input: Tensor, target: Tensor): Tensor {
    let x = this.tokens(input).add(this.positions(arange(input.size(1), { device: 'cuda' })));
    for (const layer of this.layers) x = layer(x);
    return nn.functional.crossEntropy(this.head(this.norm(x)).flatten(0, 1), target.flatten());
  }
}

async function main(): Promise<void> {
  requireGpu();
  const name = (process.argv[2] ?? '124m') as keyof typeof SIZES;
  const batch = Number(process.argv[3] ?? 16);
  const size = SIZES[name];
  const model = new Gpt(size);
  const parameters = [...model.parameters()];
  const optimizer = new optim.AdamW(parameters, { lr: 1e-4, fused: true });
  const draw = (): Tensor => randint(0, size.vocabulary, [batch, size.context], { device: 'cuda' });
  const [input, target] = [draw(), draw()];
  const hostTimes: number[] = [];
  const step = (): void => {
    const start = performance.now();
    scope(() => {
      const loss = amp.autocast({ deviceType: 'cuda', dtype: bfloat16 }, () =>
        model(input, target),
      );
      loss.backward();
      optimizer.step();
      optimizer.zeroGrad();
    });
    hostTimes.push(performance.now() - start);
  };
  const timed = async (work: () => void, times: number): Promise<number> => {
    const all: number[] = [];
    for (let i = 0; i < times; i++) {
      const start = performance.now();
      work();
      cuda.synchronize();
      all.push(performance.now() - start);
    }
    return median(all);
  };
  for (let i = 0; i < 5; i++) step();
  cuda.synchronize();
  memory.resetPeak('cuda');
  const stepMs = await timed(step, 20);
  const peakGiB = memory.stats('cuda').peakAllocatedBytes / 2 ** 30;
  scope(() =>
    amp.autocast({ deviceType: 'cuda', dtype: bfloat16 }, () => model(input, target)).backward(),
  );
  const transposed = parameters.filter((p) => p.grad?.stride().join() !== p.stride().join()).length;
  const optimizerMs = await timed(() => optimizer.step(), 10);
  const figures = {
    stepMs,
    hostMs: median(hostTimes),
    tokensPerSecond: (batch * size.context * 1000) / stepMs,
    optimizerMs,
    peakGiB,
  };
  const rounded = Object.fromEntries(
    Object.entries(figures).map(([key, value]) => [key, +value.toPrecision(4)]),
  );
  console.log(
    JSON.stringify({
      name: `train ${name} batch ${batch}`,
      ...rounded,
      gradientsOfOtherStrides: transposed,
    }),
  );
}

await runProgram(main);
