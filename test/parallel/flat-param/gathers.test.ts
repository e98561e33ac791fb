/** When flat parameters are gathered and freed, and which ranks take part. */
import assert from 'node:assert/strict';
import {
  CommDebugMode,
  type FSDPOptions,
  FullyShardedDataParallel,
  newGroup,
  ShardingStrategy,
  type ShardingStrategyName,
} from '../../../lib/distributed.js';
import { nn, optim, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import {
  assertClose,
  batchOf,
  Model,
  makeModel,
  type Net,
  oneDevice,
  step,
  Tied,
  valuesOf,
  wrap,
} from './models.js';

interface Gathers {
  /** Before the forward of `second`, after that of `first`. */
  readonly beforeSecond: number;
  /** In backward, when the gradient of the result of `third` is there. */
  readonly beforeThird: number;
  /** In backward, after that of `third`. */
  readonly afterThird: number;
}

/** Numbers of gathers at some moments of the second step. The order of modules is first, third, root. */
function gathersOf(options: FSDPOptions, rank: number): Gathers {
  const inner = makeModel(Model);
  const model = wrap(inner, options);
  const third = (inner.third as FullyShardedDataParallel).module as Net;
  const adam = new optim.AdamW(model.parameters());
  step(model, adam, batchOf(0, rank, 2));
  const comm = new CommDebugMode();
  const count = (): number => comm.getCommCounts()['allGather'] ?? 0;
  const seen = { beforeSecond: 0, beforeThird: 0, afterThird: 0 };
  let forward = 0;
  inner.second.registerForwardPreHook(() => {
    seen.beforeSecond = count();
  });
  third.norm.registerForwardHook((_, __, y) => {
    forward = count();
    y.registerHook(() => {
      seen.beforeThird = count() - forward;
    });
  });
  inner.second.registerForwardHook((_, __, y) => {
    y.registerHook(() => {
      seen.afterThird = count() - forward;
    });
  });
  comm.run(() => step(model, adam, batchOf(1, rank, 2)));
  return seen;
}

describe('a flat parameter', () => {
  const cases: readonly [FSDPOptions, Gathers][] = [
    [{}, { beforeSecond: 2, beforeThird: 2, afterThird: 2 }],
    [{ forwardPrefetch: true }, { beforeSecond: 3, beforeThird: 2, afterThird: 2 }],
    [{ backwardPrefetch: 'BACKWARD_POST' }, { beforeSecond: 2, beforeThird: 1, afterThird: 2 }],
    [{ backwardPrefetch: null }, { beforeSecond: 2, beforeThird: 1, afterThird: 1 }],
    [{ shardingStrategy: 'SHARD_GRAD_OP' }, { beforeSecond: 2, beforeThird: 0, afterThird: 0 }],
    [{ shardingStrategy: 'NO_SHARD' }, { beforeSecond: 0, beforeThird: 0, afterThird: 0 }],
  ];
  for (const [options, expected] of cases)
    it(
      `is gathered in time with ${JSON.stringify(options)}`,
      withRanks(2, (rank) => assert.deepEqual(gathersOf(options, rank), expected)),
    );

  const freed: readonly [ShardingStrategyName, boolean][] = [
    [ShardingStrategy.FULL_SHARD, true],
    [ShardingStrategy.SHARD_GRAD_OP, false],
  ];
  for (const [shardingStrategy, isFreedAfterForward] of freed)
    it(
      `has no whole memory between steps with ${shardingStrategy}`,
      withRanks(2, (rank) => {
        const inner = makeModel(Model);
        const model = wrap(inner, { shardingStrategy });
        const weights: Tensor[] = [];
        const net = (inner.first as FullyShardedDataParallel).module as Net;
        net.up.registerForwardPreHook((linear) => {
          weights.push(linear.weight);
        });
        const loss = model(batchOf(0, rank, 2))
          .square()
          .mean();
        const [weight] = weights as [Tensor];
        assert.equal(weight.untypedStorage().size() === 0, isFreedAfterForward);
        loss.backward();
        assert.equal(weight.untypedStorage().size(), 0);
        assert.throws(() => net.up.weight.add(1), { code: 'ERR_FREED' });
        assert.deepEqual(net.up.weight.shape, [10, 6]);
      }),
    );

  for (const shardingStrategy of ['FULL_SHARD', 'NO_SHARD'] as const)
    it(
      `is divided among the ranks of a group with ${shardingStrategy}`,
      withRanks(3, async (rank) => {
        const processGroup = newGroup([0, 2]);
        if (processGroup === null || rank === 1) return;
        const expected = await oneDevice(Model, 3);
        const model = wrap(makeModel(Model), { processGroup, shardingStrategy });
        const adam = new optim.AdamW(model.parameters(), { lr: 0.01 });
        for (let i = 0; i < 3; i++) step(model, adam, batchOf(i, rank / 2, 2));
        assertClose(await valuesOf(Object.entries(model.stateDict())), expected);
      }),
    );

  it(
    'is that of the modules that a policy chooses',
    withRanks(2, async (rank) => {
      const expected = await oneDevice(Tied, 3);
      const paths: string[] = [];
      const model = new FullyShardedDataParallel(makeModel(Tied), {
        autoWrapPolicy: (_, path) => paths.push(path) > 0 && path === 'block',
      });
      assert.deepEqual(paths, ['embed', 'block', 'again']);
      assert.equal([...model.parameters()].length, 2);
      const adam = new optim.AdamW(model.parameters(), { lr: 0.01 });
      for (let i = 0; i < 3; i++) step(model, adam, batchOf(i, rank, 2));
      const state = await valuesOf(Object.entries(model.stateDict()));
      state.delete('again.weight');
      assertClose(state, expected);
    }),
  );

  it(
    'lets an optimizer that was made before keep the original parameters',
    withRanks(3, async (rank) => {
      const expected = await oneDevice(Model, 3);
      const inner = makeModel(Model);
      const parameters = [...inner.parameters()];
      const adam = new optim.AdamW(parameters, { lr: 0.01 });
      const model = wrap(inner, { useOrigParams: true });
      assert.deepEqual([...model.parameters()], parameters);
      for (let i = 0; i < 3; i++) step(model, adam, batchOf(i, rank, 3));
      assertClose(await valuesOf(Object.entries(model.stateDict())), expected);
    }),
  );

  it(
    'follows a parameter that is frozen between steps',
    withRanks(2, async (rank) => {
      const inner = makeModel(Model);
      const model = wrap(inner, { useOrigParams: true });
      const adam = new optim.AdamW(model.parameters(), { lr: 0.01 });
      step(model, adam, batchOf(0, rank, 2));
      const before = await valuesOf(Object.entries(model.stateDict()));
      inner.second.weight.requiresGrad_(false);
      step(model, adam, batchOf(1, rank, 2));
      const after = await valuesOf(Object.entries(model.stateDict()));
      assert.deepEqual(after.get('second.weight'), before.get('second.weight'));
      assert.notDeepEqual(after.get('second.bias'), before.get('second.bias'));
    }),
  );

  it(
    'accumulates in a noSync that waits',
    withRanks(2, async (rank) => {
      const model = wrap(makeModel(Model)) as FullyShardedDataParallel;
      const run = (): void =>
        model(batchOf(0, rank, 2))
          .square()
          .mean()
          .backward();
      await model.noSync(async () => {
        await null;
        run();
      });
      assert.ok([...model.parameters()].every(({ grad }) => grad === null));
      run();
      assert.ok([...model.parameters()].every(({ grad }) => grad !== null));
      assert.throws(() => model.noSync(() => assert.fail('inside')), /inside/);
      const comm = new CommDebugMode();
      comm.run(run);
      assert.equal(comm.getCommCounts()['reduceScatter'], 3);
    }),
  );

  it(
    'is not there for a root whose modules are all wrapped',
    withRanks(2, async (rank) => {
      const plain = makeSequence();
      const sgd = new optim.SGD(plain.parameters(), { lr: 0.1 });
      step(plain, sgd, batchOf(0, 0, 1));
      const layers = [...makeSequence().children()].map(
        (layer) => new FullyShardedDataParallel(layer as nn.Module),
      );
      const model = new FullyShardedDataParallel(new nn.Sequential(...layers));
      assert.equal(model._flatParam, null);
      step(model, new optim.SGD(model.parameters(), { lr: 0.1 }), batchOf(0, rank, 2));
      const expected = await valuesOf(Object.entries(plain.stateDict()));
      assertClose(await valuesOf(Object.entries(model.stateDict())), expected);
    }),
  );
});

function makeSequence(): nn.Sequential {
  class Sequence extends nn.Sequential {
    constructor() {
      super(new nn.Linear(6, 4), new nn.Linear(4, 3));
    }
  }
  return makeModel(Sequence);
}
