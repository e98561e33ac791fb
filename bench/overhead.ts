/** Host time of small ops: microseconds an op, medians of bursts. usage: overhead.ts [cpu|cuda]. Prints one JSON object a row. */
import { cuda, type DeviceName, layerNorm, memory, noGrad, ones, type Tensor } from '../lib/index.js';

const device = (process.argv[2] ?? (cuda.isAvailable() ? 'cuda' : 'cpu')) as DeviceName;

const WARM_UP = 20_000;

function median(values: number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1] as number;
}

function finish(): void {
  if (device !== 'cpu') cuda.synchronize();
}

/** Runs `fn` in bursts: the time on the JavaScript thread, and until the device is done. */
function row(name: string, burst: number, repeats: number, fn: () => unknown): void {
  // Engines compile what runs often: the figures are of code that has run for a while.
  for (let i = 0; i < Math.max(burst, WARM_UP); i++) fn();
  finish();
  const [host, total]: [number[], number[]] = [[], []];
  for (let r = 0; r < repeats; r++) {
    const start = performance.now();
    for (let i = 0; i < burst; i++) fn();
    host.push(((performance.now() - start) / burst) * 1e3);
    finish();
    total.push(((performance.now() - start) / burst) * 1e3);
  }
  console.log(JSON.stringify({ name: `${name} ${device}`, burst, usHost: +median(host).toFixed(3), usTotal: +median(total).toFixed(3) }));
}

const a = ones([8], { device });
const b = ones([8], { device });
const m = ones([8, 8], { device });
noGrad(() => {
  row('add', 500, 20, () => a.add(b));
  row('add', 20000, 5, () => a.add(b));
  row('add, disposed', 20000, 5, () => a.add(b).dispose());
  row('mm 8x8', 20000, 5, () => m.mm(m));
  row('layer_norm 8x8', 20000, 5, () => layerNorm(m, [8]));
});
const x = ones([8], { device, requiresGrad: true }) as Tensor;
row('(a*2+1).sum().backward()', 3000, 5, () => {
  x.mul(2).add(1).sum().backward();
  x.grad = null;
});
console.log(JSON.stringify({ memory: memory.stats(device) }));
