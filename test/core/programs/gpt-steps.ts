/**
 * Steps of a small GPT whose activations are most of its memory. Prints the least peak of a step
 * after warm-up above the memory between steps, and the collections of a step. usage: gpt-steps.ts
 * scopes|plain|async steps
 */
import { PerformanceObserver } from 'node:perf_hooks';
import { memory, nn, optim, randint, scope, type Tensor } from '../../../lib/index.js';

const [VOCABULARY, WIDTH, HEADS, LAYERS, BATCH, LENGTH] = [512, 256, 8, 6, 16, 128];
const mode = process.argv[2] as 'scopes' | 'plain' | 'async';
const steps = Number(process.argv[3]);
const WARM_UP = 3;

class Block extends nn.Module<[x: Tensor], Tensor> {
  n1 = new nn.LayerNorm(WIDTH);
  n2 = new nn.LayerNorm(WIDTH);
  qkv = new nn.Linear(WIDTH, 3 * WIDTH);
  out = new nn.Linear(WIDTH, WIDTH);
  up = new nn.Linear(WIDTH, 4 * WIDTH);
  down = new nn.Linear(4 * WIDTH, WIDTH);

  override forward(x: Tensor): Tensor {
    const heads = (t: Tensor): Tensor =>
      t.view([BATCH, LENGTH, HEADS, WIDTH / HEADS]).transpose(1, 2);
    const [q, k, v] = this.qkv(this.n1(x)).chunk(3, -1) as [Tensor, Tensor, Tensor];
    const attended = nn.functional.scaledDotProductAttention(heads(q), heads(k), heads(v), {
      isCausal: true,
    });
    const summed = x.add(this.out(attended.transpose(1, 2).flatten(2)));
    return summed.add(this.down(this.up(this.n2(summed)).gelu()));
  }
}

class Gpt extends nn.Module<[ids: Tensor], Tensor> {
  tokens = new nn.Embedding(VOCABULARY, WIDTH);
  layers = new nn.ModuleList(Array.from({ length: LAYERS }, () => new Block()));
  head = new nn.Linear(WIDTH, VOCABULARY);

  override forward(ids: Tensor): Tensor {
    let x = this.tokens(ids);
    for (const layer of this.layers) x = mode === 'scopes' ? scope(() => layer(x)) : layer(x);
    return this.head(x).logSoftmax(-1).mean();
  }
}

/** The kind of a full collection. */
const FULL = 4;
let full = 0;
let young = 0;
const observer = new PerformanceObserver((list) => {
  for (const entry of list.getEntries())
    if ((entry as unknown as { detail: { kind: number } }).detail.kind === FULL) full++;
    else young++;
});

const model = new Gpt();
const optimizer = new optim.SGD(model.parameters(), { lr: 1e-3 });

function step(): void {
  const ids = randint(0, VOCABULARY, [BATCH, LENGTH]);
  const loss = model(ids);
  loss.backward();
  optimizer.step();
  optimizer.zeroGrad();
}

const peaks: number[] = [];
for (let i = 0; i < WARM_UP + steps; i++) {
  if (i === WARM_UP) observer.observe({ entryTypes: ['gc'] });
  memory.resetPeak();
  if (mode === 'scopes') scope(step);
  else step();
  if (mode === 'async') await new Promise((resolve) => setImmediate(resolve));
  if (i >= WARM_UP) peaks.push(memory.stats().peakAllocatedBytes);
}
await new Promise((resolve) => setTimeout(resolve, 50));
console.log(
  JSON.stringify({
    peak: Math.max(...peaks),
    least: Math.min(...peaks),
    full: full / steps,
    young: young / steps,
  }),
);
