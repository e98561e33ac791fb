/**
 * Trains with activation checkpoints, first with scopes, then without them. Prints the peaks of a
 * step, in bytes.
 */
import { checkpoint } from '../../../lib/distributed.js';
import { memory, nn, ones, optim, scope, type Tensor } from '../../../lib/index.js';

const [WARM_UP, STEPS] = [10, 6];
const [ROWS, WIDTH, LAYERS] = [8192, 64, 32];
const blocks = Array.from(
  { length: LAYERS },
  () => new nn.Sequential(new nn.Linear(WIDTH, 2 * WIDTH), new nn.Linear(2 * WIDTH, WIDTH)),
);
const optimizer = new optim.SGD(
  blocks.flatMap((block) => [...block.parameters()]),
  { lr: 1e-3 },
);
const input = ones([ROWS, WIDTH]);

function step(): void {
  let x: Tensor = input;
  for (const block of blocks) x = checkpoint((t: Tensor) => block.forward(t), x);
  x.sum().backward();
  optimizer.step();
  optimizer.zeroGrad();
}

function peakOf(run: () => void): number {
  for (let i = 0; i < WARM_UP; i++) run();
  memory.resetPeak('cpu');
  for (let i = 0; i < STEPS; i++) run();
  return memory.stats('cpu').peakAllocatedBytes;
}

const withScopes = peakOf(() => scope(step));
console.log(JSON.stringify({ withScopes, withoutScopes: peakOf(step) }));
