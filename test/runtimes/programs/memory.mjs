// A loop of training steps that awaits nothing and has no scope keeps its memory.
import assert from 'node:assert/strict';
import { memory, nn, optim, randn } from 'shardwise';

const STEPS = 20_000;
const MOST_GROWTH = 64 * 2 ** 20;

const model = new nn.Linear(16, 16);
const optimizer = new optim.SGD(model.parameters(), { lr: 0.01 });
let early = 0;
for (let step = 1; step <= STEPS; step++) {
  const loss = model(randn([64, 16]))
    .square()
    .mean();
  optimizer.zeroGrad();
  loss.backward();
  optimizer.step();
  if (step === STEPS / 4) early = process.memoryUsage.rss();
}
const growth = process.memoryUsage.rss() - early;
assert.ok(growth < MOST_GROWTH, `grew by ${Math.round(growth / 2 ** 20)} MiB`);

memory.collect();
assert.ok(memory.stats().tokens < 20, `${memory.stats().tokens} tensors are alive`);
