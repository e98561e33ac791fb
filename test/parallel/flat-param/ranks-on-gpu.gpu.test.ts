/** Flat parameters on a GPU, which ranks share if there are more of them. */
import assert from 'node:assert/strict';
import {
  CPUOffload,
  type FSDPOptions,
  type FullyShardedDataParallel,
  launch,
} from '../../../lib/distributed.js';
import { optim } from '../../../lib/index.js';
import { skipWithoutCuda } from '../../skip.js';
import {
  assertClose,
  batchOf,
  Model,
  makeModel,
  oneDevice,
  step,
  valuesOf,
  wrap,
} from './models.js';

const STEPS = 5;

const cases: Record<string, FSDPOptions> = {
  FULL_SHARD: {},
  'forward prefetch': { forwardPrefetch: true },
  SHARD_GRAD_OP: { shardingStrategy: 'SHARD_GRAD_OP' },
  NO_SHARD: { shardingStrategy: 'NO_SHARD' },
  useOrigParams: { useOrigParams: true },
  'offload to the CPU': { cpuOffload: new CPUOffload({ offloadParams: true }) },
};

describe('flat parameters on GPUs', () => {
  before(function () {
    skipWithoutCuda(this);
  });

  for (const [name, options] of Object.entries(cases))
    for (const ranks of [1, 2])
      it(`train ${ranks} ranks as one device: ${name}`, async () => {
        const expected = await oneDevice(Model, STEPS);
        await launch(ranks, async (rank) => {
          const model = wrap(makeModel(Model).to('cuda'), options);
          const adam = new optim.AdamW(model.parameters(), { lr: 0.01 });
          for (let i = 0; i < STEPS; i++) step(model, adam, batchOf(i, rank, ranks).to('cuda'));
          const onCpu = options.cpuOffload !== undefined;
          for (const p of model.parameters()) assert.equal(p.isCpu, onCpu);
          assertClose(await valuesOf(Object.entries(model.stateDict())), expected);
          model(batchOf(0, rank, ranks).to('cuda'))
            .square()
            .mean()
            .backward();
          const norm = (model as FullyShardedDataParallel).clipGradNorm_(1);
          assert.ok((await norm.itemAsync()) > 0);
          return null;
        });
      });
});
