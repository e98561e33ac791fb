/** Compiled parallel models that get another dtype between steps. */
import assert from 'node:assert/strict';
import {
  DistributedDataParallel,
  DTensor,
  FullyShardedDataParallel,
  fullyShard,
  getRank,
} from '../../lib/distributed.js';
import { compile, manualSeed, nn, randn, type Tensor } from '../../lib/index.js';
import { CompileCounterWithBackend, withRanks } from '../../lib/testing/index.js';

type Net = nn.Module<[x: Tensor], Tensor>;

const KINDS: Readonly<Record<string, (model: nn.Sequential) => nn.AnyModule>> = {
  DistributedDataParallel: (model) => new DistributedDataParallel(model as never),
  fullyShard: (model) => {
    fullyShard(model.at(0) as nn.Linear);
    return fullyShard(model);
  },
  FullyShardedDataParallel: (model) => new FullyShardedDataParallel(model as never),
  'FullyShardedDataParallel with useOrigParams': (model) =>
    new FullyShardedDataParallel(model as never, { useOrigParams: true }),
};

/** The losses and gradients of steps, each in a dtype. */
async function seenOf(
  wrap: (model: nn.Sequential) => nn.AnyModule,
  backend: 'eager' | 'aot_eager' | 'inductor' | null,
): Promise<unknown[]> {
  manualSeed(1);
  const model = wrap(new nn.Sequential(new nn.Linear(4, 6), new nn.ReLU(), new nn.Linear(6, 3)));
  const counter = CompileCounterWithBackend(backend ?? 'eager');
  const options = { backend: counter, fullgraph: true };
  const run = (backend === null ? model : compile(model, options)) as Net;
  const seen: unknown[] = [];
  for (const [step, dtype] of (['float64', 'float64', 'float32', 'float32'] as const).entries()) {
    model.to(dtype);
    manualSeed(10 * step + getRank());
    const loss = run(randn([5, 4]).to(dtype))
      .square()
      .mean();
    loss.backward();
    seen.push(loss.dtype.name, [...(await loss.detach().read())]);
    for (const { grad } of model.parameters()) {
      if (grad === null) continue; // of an original parameter of which the rank has nothing
      const local = grad instanceof DTensor ? grad.toLocal() : grad;
      seen.push(local.dtype.name, [...(await local.detach().contiguous().read())]);
    }
    model.zeroGrad();
  }
  if (backend !== null) assert.ok(counter.frameCount <= 4, `${counter.frameCount} graphs`);
  return seen;
}

describe('a compiled model that is converted before and between steps', () => {
  for (const [name, wrap] of Object.entries(KINDS))
    for (const backend of ['eager', 'aot_eager', 'inductor'] as const)
      it(
        `computes as the uncompiled one: ${name}, ${backend}`,
        withRanks(2, async () => {
          assert.deepEqual(await seenOf(wrap, backend), await seenOf(wrap, null));
        }),
      );
});
