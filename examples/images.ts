/**
 * Learns to tell drawn digits apart by two convolutions of `unfold` and `linear`, and prints the
 * share of right answers on digits that training has not seen.
 *
 *   node --import tsx examples/images.ts --epochs 5
 */
import { Command } from 'commander';
import {
  cuda,
  type DeviceName,
  manualSeed,
  nn,
  noGrad,
  optim,
  rand,
  scope,
  type Tensor,
  tensor,
} from '../lib/index.js';
import { count, deviceName } from './common/arguments.js';

const SIZE = 12;
const BATCH = 64;

/** Ten digits of 5 x 3 pixels. */
const DIGITS = [
  '111101101101111',
  '010110010010111',
  '111001111100111',
  '111001111001111',
  '101101111001001',
  '111100111001111',
  '111100111101111',
  '111001010010010',
  '111101111101111',
  '111101111001111',
].map((pixels) => [...pixels].map(Number));

/** Digits at random places, with noise: images [n, 1, 12, 12] and labels [n]. */
function draw(n: number, device: DeviceName): { images: Tensor; labels: Tensor } {
  const pixels = new Float32Array(n * SIZE * SIZE);
  const labels = Array.from({ length: n }, (_, i) => i % DIGITS.length);
  const places = rand([2 * n]).tolist() as number[];
  labels.forEach((digit, i) => {
    const top = Math.floor((places[2 * i] as number) * (SIZE - 5));
    const left = Math.floor((places[2 * i + 1] as number) * (SIZE - 3));
    DIGITS[digit]?.forEach((value, at) => {
      pixels[(i * SIZE + top + Math.floor(at / 3)) * SIZE + left + (at % 3)] = value;
    });
  });
  const clean = tensor(pixels, { device }).view(n, 1, SIZE, SIZE);
  const noise = rand([n, 1, SIZE, SIZE], { device }).mul(0.5);
  return { images: clean.add(noise), labels: tensor(labels, { dtype: 'int64', device }) };
}

/** A convolution without padding: [n, c, h, w] to [n, out, h - 2, w - 2]. */
class Convolution extends nn.Module<[x: Tensor], Tensor> {
  linear: nn.Linear;

  constructor(inChannels: number, outChannels: number) {
    super();
    this.linear = new nn.Linear(inChannels * 9, outChannels);
  }

  forward(x: Tensor): Tensor {
    const windows = x.unfold(2, 3, 1).unfold(3, 3, 1); // [n, c, h - 2, w - 2, 3, 3]
    return this.linear(windows.permute(0, 2, 3, 1, 4, 5).flatten(3)).permute(0, 3, 1, 2);
  }
}

class Network extends nn.Module<[x: Tensor], Tensor> {
  first = new Convolution(1, 16);
  second = new Convolution(16, 32);
  head = new nn.Linear(32 * 16, DIGITS.length);

  forward(x: Tensor): Tensor {
    const y = this.second(this.first(x).relu()).relu(); // [n, 32, 8, 8]
    const pooled = y.unfold(2, 2, 2).unfold(3, 2, 2).amax([-2, -1]); // [n, 32, 4, 4]
    return this.head(pooled.flatten(1));
  }
}

const options = new Command('images')
  .option('--epochs <n>', 'passes over the digits', count(1), 5)
  .option('--images <n>', 'digits to learn from', count(BATCH), 4000)
  .option('--device <name>', 'cpu or cuda', deviceName, cuda.isAvailable() ? 'cuda' : 'cpu')
  .parse()
  .opts<{ epochs: number; images: number; device: DeviceName }>();

manualSeed(0);
const training = draw(options.images, options.device);
const unseen = draw(400, options.device);
const model = new Network().to(options.device);
const optimizer = new optim.AdamW(model.parameters(), { lr: 3e-3 });
for (let epoch = 1; epoch <= options.epochs; epoch++) {
  const start = performance.now();
  for (let from = 0; from + BATCH <= options.images; from += BATCH)
    scope(() => {
      const logits = model(training.images.narrow(0, from, BATCH));
      nn.functional.crossEntropy(logits, training.labels.narrow(0, from, BATCH)).backward();
      optimizer.step();
      optimizer.zeroGrad();
    });
  const isRight = noGrad(() => model(unseen.images).argmax(1).eq(unseen.labels).float().mean());
  const percent = (100 * (await isRight.itemAsync())).toFixed(1);
  const seconds = ((performance.now() - start) / 1000).toFixed(1);
  console.log(`epoch ${epoch}: ${percent} % of unseen digits are right, ${seconds} s`);
}
