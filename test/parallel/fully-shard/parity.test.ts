/** A sharded model trains as one device does, whatever the number of ranks and the options. */
import assert from 'node:assert/strict';
import {
  CPUOffloadPolicy,
  fullyShard,
  initDeviceMesh,
  MixedPrecisionPolicy,
  Shard,
} from '../../../lib/distributed.js';
import { bfloat16, float32, float64, nn, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import {
  adamOf,
  assertClose,
  batchOf,
  lossOf,
  type Model,
  newModel,
  partOf,
  trained,
  trainedAlone,
  valuesOf,
} from './model.js';

type Options = Parameters<typeof fullyShard>[1];

/** Shards the blocks, and leaves the root to the caller. */
function withShardedBlocks(model: Model, options: Options = {}): Model {
  fullyShard(model.first, options);
  fullyShard(model.third, options);
  return model;
}

const sharded = (model: Model, options: Options = {}): Model =>
  fullyShard(withShardedBlocks(model, options), options);

describe('a model that fullyShard sharded', () => {
  for (const ranks of [1, 2, 3, 4])
    it(
      `trains on ${ranks} ranks as one device trains on the whole batch`,
      withRanks(ranks, async (rank) => {
        const expected = await trainedAlone();
        assertClose(await trained(sharded(newModel()), rank, ranks), expected);
      }),
    );

  it(
    'trains on ranks that are processes as one device trains',
    withRanks(
      2,
      async (rank) => {
        const expected = await trainedAlone();
        assertClose(await trained(sharded(newModel()), rank, 2), expected);
      },
      { mode: 'process' },
    ),
  );

  const variants: Record<string, () => Options> = {
    'that keeps whole parameters after forward': () => ({ reshardAfterForward: false }),
    'whose root frees whole parameters after forward, too': () => ({ reshardAfterForward: true }),
    'whose parameters groups of two ranks hold between forward and backward': () => ({
      reshardAfterForward: 2,
    }),
    'with two replicas of two shards': () => ({
      mesh: initDeviceMesh('cpu', [2, 2], { meshDimNames: ['replicate', 'shard'] }),
    }),
    'with shards on the CPU': () => ({ offloadPolicy: new CPUOffloadPolicy() }),
  };
  for (const [what, optionsFor] of Object.entries(variants))
    it(
      `trains as one device: a model ${what}`,
      withRanks(4, async (rank) => {
        const expected = await trainedAlone();
        const actual = await trained(sharded(newModel(), optionsFor()), rank, 4);
        assertClose(actual, expected);
      }),
    );

  it(
    'shards a weight in the dim that shardPlacementFn returns',
    withRanks(2, async (rank) => {
      const expected = await trainedAlone();
      const model = newModel();
      const { weight } = model.first.up;
      sharded(model, { shardPlacementFn: (p) => (p === weight ? Shard(1) : null) });
      assert.deepEqual(weight.toLocal().shape, [10, 3]);
      assertClose(await trained(model, rank, 2), expected);
    }),
  );

  it(
    'computes in paramDtype and reduces in reduceDtype',
    withRanks(2, async (rank) => {
      const seen: string[] = [];
      const model = newModel(float32);
      const dtypes = { paramDtype: bfloat16, reduceDtype: float32 };
      const mpPolicy = new MixedPrecisionPolicy(dtypes);
      model.first.up.registerForwardPreHook((up, [x]) => {
        seen.push(x.dtype.name, up.weight.dtype.name);
      });
      withShardedBlocks(model, { mpPolicy });
      fullyShard(model, {
        mpPolicy: new MixedPrecisionPolicy({ ...dtypes, outputDtype: float32 }),
      });
      const loss = lossOf(model, partOf(batchOf(0, float32), rank, 2));
      assert.equal(loss.dtype, float32);
      loss.backward();
      assert.deepEqual(seen, ['bfloat16', 'bfloat16']);
      for (const p of model.parameters()) assert.equal(p.grad?.dtype, float32);
    }),
  );

  it(
    'has gradients in bfloat16 that are those of one device within its rounding',
    withRanks(2, async (rank) => {
      const alone = newModel();
      lossOf(alone, batchOf(0)).backward();
      const model = newModel(float32);
      sharded(model, { mpPolicy: new MixedPrecisionPolicy({ paramDtype: bfloat16 }) });
      lossOf(model, partOf(batchOf(0, float32), rank, 2)).backward();
      const expected = new Map([...alone.namedParameters()]);
      for (const [name, p] of model.namedParameters()) {
        const given = (p.grad as Tensor).fullTensor().to(float64);
        const exact = expected.get(name)?.grad as Tensor;
        const [error] = await given.sub(exact).norm().reshape([1]).read();
        const [size] = await exact.norm().reshape([1]).read();
        assert.ok(Number(error) <= 0.03 * Number(size) + 1e-3, `${name}: ${error} of ${size}`);
      }
    }),
  );

  it(
    'sums gradients over micro-batches with and without reductions in between',
    withRanks(2, async (rank) => {
      const alone = newModel();
      for (let micro = 0; micro < 3; micro++) lossOf(alone, batchOf(micro)).backward();
      adamOf(alone).step();
      const expected = await valuesOf(alone);
      for (const syncs of [true, false]) {
        const model = fullyShard(withShardedBlocks(newModel()));
        for (let micro = 0; micro < 3; micro++) {
          model.setRequiresGradientSync(syncs || micro === 2);
          lossOf(model, partOf(batchOf(micro), rank, 2)).backward();
        }
        adamOf(model).step();
        assertClose(await valuesOf(model), expected);
      }
    }),
  );

  it(
    'clips gradients by the norm of all of them',
    withRanks(3, async (rank) => {
      const alone = newModel();
      lossOf(alone, batchOf(0)).backward();
      const expected = nn.utils.clipGradNorm_(alone.parameters(), 0.01).item();
      const model = sharded(newModel());
      lossOf(model, partOf(batchOf(0), rank, 3)).backward();
      const norm = nn.utils.clipGradNorm_(model.parameters(), 0.01);
      const [given] = await norm.reshape([1]).read();
      assert.ok(Math.abs(Number(given) - expected) < 1e-9 * expected);
    }),
  );

  it(
    'is updated by an optimizer that was made before it was sharded',
    withRanks(2, async (rank) => {
      const expected = await trainedAlone(1);
      const model = newModel();
      const adam = adamOf(model);
      sharded(model);
      lossOf(model, partOf(batchOf(0), rank, 2)).backward();
      adam.step();
      assertClose(await valuesOf(model), expected);
    }),
  );
});
