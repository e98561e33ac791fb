/** Host time of small ops: microseconds an op in bursts. usage: overhead.ts [cpu|cuda] */
import { cuda, layerNorm, noGrad, ones } from '../lib/index.js';
import { median } from './figures.js';
import { device, print } from './measure.js';

/** Calls after which the engine has compiled the code. */
const WARM_UP = 20_000;

function finish(): void {
  if (device !== 'cpu') cuda.synchronize();
}

/**
 * Runs `fn` in bursts and prints the time on the JavaScript thread and until the device is done.
 */
function row(name: string, burst: number, repeats: number, fn: () => unknown): void {
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
  print({ name, unit: 'us', value: median(total), burst });
  if (device !== 'cpu')
    print({ name: `${name}, JavaScript thread`, unit: 'us', value: median(host), burst });
}

const a = ones([8], { device });
const b = ones([8], { device });
const m = ones([8, 8], { device });
noGrad(() => {
  row('add', 500, 41, () => a.add(b));
  row('add', 20000, 7, () => a.add(b));
  row('add, disposed', 20000, 7, () => a.add(b).dispose());
  row('mm 8x8', 20000, 7, () => m.mm(m));
  row('layer norm 8x8', 20000, 7, () => layerNorm(m, [8]));
});
const x = ones([8], { device, requiresGrad: true });
row('(a*2+1).sum().backward()', 3000, 7, () => {
  x.mul(2).add(1).sum().backward();
  x.grad = null;
});
