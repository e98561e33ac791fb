/** Flat parameters on a GPU, which ranks share if there are more of them. */
import assert from 'node:assert/strict';
import {
  CPUOffload,
  type FSDPOptions,
  FullyShardedDataParallel,
  launch,
} from '../../../lib/distributed.js';
import { cuda, memory, nn, noGrad, optim, randn } from '../../../lib/index.js';
import { skipBecause, skipWithoutCuda } from '../../skip.js';
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

  it('hold the whole parameters of few modules at once, unless limitAllGathers is false', async function () {
    if (cuda.deviceCount() < 2) skipBecause(this, 'one GPU, it takes two');
    const [limited, unlimited] = [await mostReserved(true), await mostReserved(false)];
    for (const [rank, bytes] of limited.entries())
      assert.ok(bytes + 4 * LAYER_BYTES < (unlimited[rank] as number), `${limited}, ${unlimited}`);
  });
});

const WIDTH = 2048;
const LAYER_BYTES = WIDTH * WIDTH * 4;

/** The most bytes that a forward pass reserves on each rank while the host is ahead of its GPU. */
function mostReserved(limitAllGathers: boolean): Promise<number[]> {
  return launch(2, async () => {
    const layers = Array.from({ length: 24 }, () => {
      const linear = new nn.Linear(WIDTH, WIDTH, { bias: false }).to('cuda');
      return new FullyShardedDataParallel(linear, { limitAllGathers });
    });
    const model = new FullyShardedDataParallel(new nn.Sequential(...layers), { limitAllGathers });
    const x = randn([8192, WIDTH], { device: 'cuda' });
    const forward = () => noGrad(() => model(x).sum()).itemAsync();
    await forward();
    memory.emptyCache(x.device);
    memory.resetPeak(x.device);
    await forward();
    return memory.stats(x.device).peakReservedBytes;
  });
}
