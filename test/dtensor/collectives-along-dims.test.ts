/** Collectives along a dim behind others: by blocks in one call, or transposed to the front. */
import assert from 'node:assert/strict';
import { captureStep } from '../../lib/compile/index.js';
import { CommDebugMode, functional } from '../../lib/distributed.js';
import {
  bfloat16,
  cat,
  type DType,
  float32,
  manualSeed,
  rand,
  type Tensor,
} from '../../lib/index.js';
import { describeOverEngines, onRanks, valuesOf } from '../distributed/support/on-ranks.js';

/** The shard of a rank; `outer`: the elements of the dims before that of the ranks. */
function shard(rank: number, outer: number, dtype: DType): Tensor {
  manualSeed(rank);
  return rand([outer, 3, 2]).sub(0.5).to(dtype);
}

/** The ops of a step without views. */
const opsOf = (fn: (t: Tensor) => Tensor, x: Tensor): string[] =>
  captureStep(fn, [x])
    .graph.callNodes.filter(({ op }) => op?.view == null)
    .map(({ op }) => op?.name ?? '');

describeOverEngines('collectives along dim 1', () => {
  for (const [outer, how] of [
    [2, 'by blocks'],
    [16, 'by blocks'],
    [17, 'transposed'],
  ] as const)
    for (const dtype of [float32, bfloat16]) {
      it(`gather and scatter ${how}, ${outer} rows, ${dtype.name}`, async () => {
        await onRanks(3, async (rank) => {
          const x = shard(rank, outer, dtype).requiresGrad_();
          const mode = new CommDebugMode();
          const whole = mode.run(() => functional.allGatherTensor(x, 1));
          assert.equal(mode.getTotalCounts(), 1);
          const shards = [0, 1, 2].map((each) => shard(each, outer, dtype));
          assert.deepEqual(await valuesOf(whole.detach()), await valuesOf(cat(shards, 1)));
          assert.ok(whole.isContiguous());
          whole
            .mul(rank + 1)
            .sum()
            .backward();
          const ones = new Array(x.numel()).fill(6);
          assert.deepEqual(await valuesOf(x.grad as Tensor), ones);

          const y = cat([x, x.mul(2), x.mul(4)], 1)
            .detach()
            .requiresGrad_();
          const own = functional.reduceScatterTensor(y, 'sum', 1);
          // Sums are rounded once.
          const sums = shards
            .map((t) => t.mul(2 ** rank).to(float32))
            .reduce((sum, t) => sum.add(t))
            .to(dtype);
          assert.deepEqual(await valuesOf(own.detach()), await valuesOf(sums));
          own.sum().backward();
          assert.deepEqual(await valuesOf(y.grad as Tensor), new Array(y.numel()).fill(1));
        });
      });
    }

  it('copy nothing but where a block would be one of many', async () => {
    await onRanks(2, async (rank) => {
      const gather = (t: Tensor): Tensor => functional.allGatherTensor(t, 1).mul(2);
      const blocks = opsOf(gather, shard(rank, 4, float32));
      assert.deepEqual(blocks, ['allGather', 'mul']);
      const transposed = opsOf(gather, shard(rank, 32, float32));
      assert.deepEqual(transposed, ['copy', 'allGather', 'copy', 'mul']);
    });
  });
});
