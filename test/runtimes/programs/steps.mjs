// Training steps whose kernels run in threads and keep large buffers on their stacks.
import assert from 'node:assert/strict';
import { manualSeed, nn, optim, randn } from 'shardwise';

manualSeed(0);
const x = randn([64, 1024]);
const settings = { SGD: { momentum: 0.9 }, Adam: { amsgrad: true }, AdamW: {} };
for (const [name, options] of Object.entries(settings))
  for (const dtype of ['float32', 'bfloat16']) {
    const model = new nn.Sequential(new nn.Linear(1024, 1024), new nn.Linear(1024, 1)).to(dtype);
    const optimizer = new optim[name](model.parameters(), { lr: 1e-4, ...options });
    const losses = [];
    for (let step = 0; step < 6; step++) {
      optimizer.zeroGrad();
      const loss = model(x.to(dtype)).square().mean();
      loss.backward();
      nn.utils.clipGradNorm_(model.parameters(), 1);
      optimizer.step();
      losses.push(loss.item());
    }
    assert.ok(losses.at(-1) < losses[0], `${name} of ${dtype}: ${losses}`);
  }
const variances = x.double().var(0);
assert.ok(Math.abs(variances.mean().item() - 1) < 0.1);
