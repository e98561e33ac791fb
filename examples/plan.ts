/**
 * Which way to divide a model of 8 billion parameters among 8 GPUs fits, and is fastest? The plan
 * needs neither GPUs nor memory.
 *
 *   node --import tsx examples/plan.ts --layers 32 --gib 80
 */
import { Command } from 'commander';
import { applyActivationCheckpointing } from '../lib/distributed.js';
import { amp, nn, optim, randint, scaledDotProductAttention, type Tensor } from '../lib/index.js';
import * as spmd from '../lib/spmd/index.js';
import { count } from './common/arguments.js';

const WIDTH = 4096;
const HEADS = 32;
const VOCABULARY = 128_256;

class Block extends nn.Module<[x: Tensor], Tensor> {
  norm1 = new nn.RMSNorm(WIDTH);
  q = new nn.Linear(WIDTH, WIDTH, { bias: false });
  k = new nn.Linear(WIDTH, WIDTH / 4, { bias: false });
  v = new nn.Linear(WIDTH, WIDTH / 4, { bias: false });
  out = new nn.Linear(WIDTH, WIDTH, { bias: false });
  norm2 = new nn.RMSNorm(WIDTH);
  gate = new nn.Linear(WIDTH, 14_336, { bias: false });
  up = new nn.Linear(WIDTH, 14_336, { bias: false });
  down = new nn.Linear(14_336, WIDTH, { bias: false });

  forward(x: Tensor): Tensor {
    const heads = (t: Tensor): Tensor => t.unflatten(-1, [-1, WIDTH / HEADS]).transpose(1, 2);
    const y = this.norm1(x);
    const attended = scaledDotProductAttention(
      heads(this.q(y)),
      heads(this.k(y)),
      heads(this.v(y)),
      {
        isCausal: true,
        enableGqa: true,
      },
    );
    const z = x.add(this.out(attended.transpose(1, 2).flatten(2)));
    const normed = this.norm2(z);
    return z.add(this.down(this.gate(normed).silu().mul(this.up(normed))));
  }
}

class Llama extends nn.Module<[ids: Tensor], Tensor> {
  embedding = new nn.Embedding(VOCABULARY, WIDTH);
  layers: nn.ModuleList;
  norm = new nn.RMSNorm(WIDTH);
  head = new nn.Linear(WIDTH, VOCABULARY, { bias: false });

  constructor(layers: number) {
    super();
    this.layers = new nn.ModuleList(Array.from({ length: layers }, () => new Block()));
  }

  forward(ids: Tensor): Tensor {
    let x = this.embedding(ids);
    for (const layer of this.layers) x = (layer as Block)(x);
    return this.head(this.norm(x));
  }
}

/** How tensor parallelism divides a parameter: what ends a block by its inputs, the rest by its outputs. */
function shardParameter(name: string): number | null {
  if (name.includes('norm')) return null;
  return /\.(out|down)\.weight$/.test(name) ? 1 : 0;
}

const options = new Command('plan')
  .option('--layers <n>', 'of 8 billion parameters: 32', count(1), 32)
  .option('--gpus <n>', 'GPUs', count(2), 8)
  .option('--gib <n>', 'memory of a GPU', count(1), 80)
  .option('--length <n>', 'tokens of a sequence', count(2), 4096)
  .option('--no-recompute', 'keep the activations of all layers')
  .parse()
  .opts<{ layers: number; gpus: number; gib: number; length: number; recompute: boolean }>();

const trainStep = (model: Llama, optimizer: optim.AdamW, ids: Tensor): void => {
  const length = ids.size(1) - 1;
  const loss = amp.autocast({ deviceType: 'cuda', dtype: 'bfloat16' }, () => {
    const logits = model(ids.narrow(1, 0, length)).flatten(0, 1);
    return nn.functional.crossEntropy(logits, ids.narrow(1, 1, length).flatten());
  });
  loss.backward();
  optimizer.step();
  optimizer.zeroGrad();
};
const found = spmd.plan(
  ({ dataRanks }) => {
    const model = new Llama(options.layers).to('cuda');
    if (options.recompute)
      applyActivationCheckpointing(model, { checkFn: (m) => m instanceof Block });
    const optimizer = new optim.AdamW(model.parameters(), { capturable: true, fused: true });
    const batch = [options.gpus / dataRanks, options.length + 1];
    return {
      trainStep,
      args: [model, optimizer, randint(0, VOCABULARY, batch, { device: 'cuda' })],
    };
  },
  { shape: [options.gpus / 2, 2], meshDimNames: ['dp', 'tp'] },
  {
    device: 'cuda',
    memoryBytes: options.gib * 2 ** 30,
    paramDtype: 'bfloat16',
    shardParameter,
  },
);
console.log(`${found}`);
