/**
 * Times kernels and a training step at sizes where arithmetic dominates. usage: kernels.ts
 * [cpu|cuda]
 */
import {
  bfloat16,
  type DType,
  float32,
  layerNorm,
  nn,
  noGrad,
  ones,
  optim,
  rand,
  randint,
  scope,
  type Tensor,
  zeros,
} from '../lib/index.js';
import { device, millisecondsOf, print } from './measure.js';

/** Runs `fn` and keeps only its last result, which `settle` waits for. */
function chainOf(fn: () => Tensor): { work: () => void; settle: () => Promise<unknown> } {
  let last: Tensor | null = null;
  return {
    work: () => {
      last?.dispose();
      last = noGrad(() => scope(fn));
    },
    settle: () => (last as Tensor).reshape(-1).narrow(0, 0, 1).read(),
  };
}

async function time(name: string, fn: () => Tensor, burst: number, repeats = 15): Promise<void> {
  const { work, settle } = chainOf(fn);
  print({ name, unit: 'ms', value: await millisecondsOf(work, settle, burst, repeats), burst });
}

async function matmul(size: number, dtype: DType): Promise<void> {
  const [a, b] = [
    rand([size, size], { device }).to(dtype),
    rand([size, size], { device }).to(dtype),
  ];
  const { work, settle } = chainOf(() => a.mm(b));
  const ms = await millisecondsOf(work, settle, 3, 15);
  print({
    name: `matmul ${size} cubed, ${dtype.name}`,
    unit: 'GFLOP/s',
    value: (2 * size ** 3) / ms / 1e6,
    burst: 3,
  });
}

/**
 * An MLP of 784-128-10 with ReLU, cross entropy, Adam and batch 64, without scopes, reading the
 * loss every step.
 */
async function mlpStep(): Promise<void> {
  const net = new nn.Sequential(new nn.Linear(784, 128), new nn.ReLU(), new nn.Linear(128, 10)).to(
    device,
  );
  const optimizer = new optim.Adam(net.parameters(), { lr: 1e-3 });
  const criterion = new nn.CrossEntropyLoss();
  const x = rand([64, 784], { device }).mul(2).sub(1);
  const y = randint(0, 10, [64], { device });
  const work = (): void => {
    const loss = criterion(net(x), y);
    optimizer.zeroGrad();
    loss.backward();
    optimizer.step();
    loss.item();
  };
  for (let i = 0; i < 200; i++) work();
  print({
    name: 'MLP Adam step',
    unit: 'ms',
    value: await millisecondsOf(work, async () => {}, 1, 301),
    burst: 1,
  });
}

await matmul(2048, float32);
await matmul(2048, bfloat16);
const [rows, gain, bias] = [
  rand([512, 768], { device }),
  ones([768], { device }),
  zeros([768], { device }),
];
await time('layer norm 512x768', () => layerNorm(rows, [768], gain, bias), 50);
const million = rand([2 ** 20], { device });
await time('tanh chain of 1M', () => million.mul(1.5).add(0.5).tanh().mul(2).add(0.25), 10);
await mlpStep();
