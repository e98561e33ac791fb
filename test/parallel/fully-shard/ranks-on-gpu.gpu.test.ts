/** Sharded training on a GPU, which ranks share if there are more of them. */
import assert from 'node:assert/strict';
import {
  CPUOffloadPolicy,
  fullyShard,
  initDeviceMesh,
  launch,
  MixedPrecisionPolicy,
} from '../../../lib/distributed.js';
import {
  bfloat16,
  device,
  FreedError,
  float32,
  memory,
  nn,
  optim,
  randn,
  type Tensor,
} from '../../../lib/index.js';
import { skipWithoutCuda } from '../../skip.js';
import {
  adamOf,
  assertClose,
  batchOf,
  lossOf,
  newModel,
  partOf,
  trainedAlone,
  valuesOf,
} from './model.js';
import { newWideModel, shardedWide } from './wide-model.js';

type Options = Parameters<typeof fullyShard>[1];
const STEPS = 5;

const variants: Record<string, () => Options> = {
  'by default': () => ({}),
  'keeping whole parameters after forward': () => ({ reshardAfterForward: false }),
  'with shards on the CPU': () => ({ offloadPolicy: new CPUOffloadPolicy() }),
};

describe('fullyShard on GPUs', () => {
  before(function () {
    skipWithoutCuda(this);
  });

  for (const [what, options] of Object.entries(variants))
    for (const ranks of [1, 2, 4])
      it(`trains ${ranks} ranks as one device ${what}`, async () => {
        const expected = await trainedAlone(STEPS);
        await launch(ranks, async (rank) => {
          const model = newModel().to('cuda');
          fullyShard(model.first, options());
          fullyShard(model.third, options());
          fullyShard(model, options());
          const adam = adamOf(model);
          for (let step = 0; step < STEPS; step++) {
            lossOf(model, partOf(batchOf(step), rank, ranks).to('cuda')).backward();
            adam.step();
            adam.zeroGrad();
          }
          assertClose(await valuesOf(model), expected, 1e-8);
        });
      });

  for (const [what, options] of Object.entries(variants))
    it(`gathers large parameters in place ${what}`, async () => {
      const expected = await trainedAlone(STEPS, newWideModel());
      await launch(2, async (rank) => {
        const model = shardedWide(newWideModel().to('cuda'), options());
        const adam = adamOf(model);
        for (let step = 0; step < STEPS; step++) {
          lossOf(model, partOf(batchOf(step), rank, 2).to('cuda')).backward();
          adam.step();
          adam.zeroGrad();
        }
        assertClose(await valuesOf(model), expected, 1e-8);
      });
    });

  it('frees whole parameters of the last layer at the end of forward', async () => {
    await launch(2, async () => {
      const model = shardedWide(newWideModel().to('cuda'));
      let { weight } = model.last.up as { weight: Tensor };
      model.last.up.registerForwardPreHook((up) => {
        weight = up.weight;
      });
      lossOf(model, batchOf(0).to('cuda'));
      assert.throws(() => weight.add(1), FreedError);
    });
  });

  it('trains two replicas of two shards as one device', async () => {
    const expected = await trainedAlone(STEPS);
    await launch(4, async (rank) => {
      const mesh = initDeviceMesh('cuda', [2, 2], { meshDimNames: ['replicate', 'shard'] });
      const model = newModel().to('cuda');
      fullyShard(model.first, { mesh });
      fullyShard(model, { mesh });
      const adam = adamOf(model);
      for (let step = 0; step < STEPS; step++) {
        lossOf(model, partOf(batchOf(step), rank, 4).to('cuda')).backward();
        adam.step();
        adam.zeroGrad();
      }
      assertClose(await valuesOf(model), expected, 1e-8);
    });
  });

  it('holds the whole parameters of few layers at a time, however far the host is ahead', async () => {
    await launch(2, async () => {
      const [layers, size] = [16, 1024];
      const gpu = device('cuda');
      const mpPolicy = new MixedPrecisionPolicy({ paramDtype: bfloat16, reduceDtype: float32 });
      const model = new nn.Sequential(
        ...Array.from({ length: layers }, () => new nn.Linear(size, size, { bias: false })),
      ).to('cuda');
      for (const layer of model.children()) fullyShard(layer, { mpPolicy });
      fullyShard(model, { mpPolicy });
      const sgd = new optim.SGD(model.parameters(), { lr: 1e-3 });
      const x = randn([8, size], { device: 'cuda' });
      const step = (): void => {
        lossOf(model, x).backward();
        sgd.step();
        sgd.zeroGrad();
      };
      step();
      memory.resetPeak(gpu);
      const before = memory.stats(gpu).allocatedBytes;
      for (let i = 0; i < 3; i++) step();
      const peak = memory.stats(gpu).peakAllocatedBytes - before;
      // Sharded gradients of all layers, and the whole parameters and gradients of a few.
      const shards = (layers * size * size * 4) / 2;
      assert.ok(peak <= 2 * (shards + 8 * size * size * 4), `${peak} bytes`);
    });
  });
});
