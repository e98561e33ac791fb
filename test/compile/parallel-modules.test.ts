/** Modules of parallel training are one graph, also where passes accumulate gradients. */
import assert from 'node:assert/strict';
import {
  DistributedDataParallel,
  FullyShardedDataParallel,
  fullyShard,
  getRank,
} from '../../lib/distributed.js';
import { compile, manualSeed, nn, optim, randn, type Tensor } from '../../lib/index.js';
import { CompileCounterWithBackend } from '../../lib/testing/index.js';
import { onRanks } from '../distributed/support/on-ranks.js';
import { BACKENDS } from '../seeds/compiled.js';

type Model = (x: Tensor) => Tensor;

const wrappers: Record<string, (model: nn.Sequential) => nn.Module> = {
  DistributedDataParallel: (model) => new DistributedDataParallel(model),
  fullyShard(model) {
    for (const layer of model) if (layer instanceof nn.Linear) fullyShard(layer);
    return fullyShard(model);
  },
  FullyShardedDataParallel: (model) => new FullyShardedDataParallel(model),
};

/** Losses of steps that accumulate two passes each. */
async function losses(wrap: (model: nn.Sequential) => nn.Module, compiled: (m: Model) => Model) {
  manualSeed(1);
  const model = wrap(new nn.Sequential(new nn.Linear(4, 6), new nn.Tanh(), new nn.Linear(6, 2)));
  const optimizer = new optim.SGD(model.parameters(), { lr: 0.5 });
  const run = compiled(model as unknown as Model);
  manualSeed(7 + getRank());
  const found: number[] = [];
  for (let step = 0; step < 3; step++) {
    for (let pass = 0; pass < 2; pass++) {
      const loss = run(randn([3, 4]))
        .square()
        .mean();
      loss.backward();
      found.push((await loss.itemAsync()) as number);
    }
    optimizer.step();
    optimizer.zeroGrad();
  }
  return found;
}

for (const backend of BACKENDS)
  describe(`with backend ${backend}, a compiled model of`, () => {
    for (const [name, wrap] of Object.entries(wrappers))
      it(`${name} trains as uncompiled`, async () => {
        await onRanks(2, async () => {
          const counter = CompileCounterWithBackend(backend);
          const expected = await losses(wrap, (m) => m);
          const found = await losses(wrap, (m) =>
            compile(m, { backend: counter, fullgraph: true }),
          );
          found.forEach((loss, i) => {
            assert.ok(Math.abs(loss - (expected[i] as number)) < 1e-6, `${found} ${expected}`);
          });
          assert.equal(counter.frameCount, 1);
        });
      });
  });
