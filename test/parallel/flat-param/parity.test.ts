/** A model of flat parameters trains as one device does, with each option. */
import {
  applyActivationCheckpointing,
  CPUOffload,
  type FSDPOptions,
  initDeviceMesh,
  type ShardingStrategyName,
} from '../../../lib/distributed.js';
import { type nn, optim } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import {
  assertClose,
  batchOf,
  Model,
  makeModel,
  Net,
  oneDevice,
  step,
  Tied,
  valuesOf,
  wrap,
} from './models.js';

const STEPS = 10;

async function assertTrainsAlike(
  kind: new () => nn.AnyModule,
  rank: number,
  ranks: number,
  options: FSDPOptions,
  prepare: (model: nn.AnyModule) => void = () => {},
): Promise<void> {
  const expected = await oneDevice(kind, STEPS, prepare);
  const inner = makeModel(kind);
  prepare(inner);
  const model = wrap(inner, options);
  const adam = new optim.AdamW(model.parameters(), { lr: 0.01 });
  for (let i = 0; i < STEPS; i++) step(model, adam, batchOf(i, rank, ranks));
  const state = await valuesOf(Object.entries(model.stateDict()));
  for (const name of state.keys()) if (!expected.has(name)) state.delete(name); // second names of shared ones
  assertClose(state, expected);
}

const strategies: ShardingStrategyName[] = ['FULL_SHARD', 'SHARD_GRAD_OP', 'NO_SHARD'];

describe('FullyShardedDataParallel', () => {
  for (const ranks of [1, 2, 3, 4]) {
    for (const useOrigParams of [false, true])
      it(
        `trains ${ranks} ranks as one device, with useOrigParams: ${useOrigParams}`,
        withRanks(ranks, (rank) => assertTrainsAlike(Model, rank, ranks, { useOrigParams })),
      );
  }

  for (const shardingStrategy of strategies)
    for (const useOrigParams of [false, true])
      it(
        `trains 3 ranks with ${shardingStrategy} and useOrigParams: ${useOrigParams}`,
        withRanks(3, (rank) =>
          assertTrainsAlike(Model, rank, 3, { shardingStrategy, useOrigParams }),
        ),
      );

  for (const [ranks, useOrigParams] of [
    [1, false],
    [2, false],
    [3, true],
  ] as const)
    it(
      `wraps ${ranks} ranks' modules inside of activation checkpoints, with useOrigParams: ${useOrigParams}`,
      withRanks(ranks, (rank) =>
        assertTrainsAlike(
          Model,
          rank,
          ranks,
          { useOrigParams, autoWrapPolicy: (module) => module instanceof Net },
          (model) => {
            applyActivationCheckpointing(model, { checkFn: (module) => module instanceof Net });
          },
        ),
      ),
    );

  for (const [shardingStrategy, useOrigParams] of [
    ['HYBRID_SHARD', false],
    ['HYBRID_SHARD', true],
    ['_HYBRID_SHARD_ZERO2', false],
  ] as const)
    it(
      `trains 2 replicas of 2 ranks with ${shardingStrategy} and useOrigParams: ${useOrigParams}`,
      withRanks(4, (rank) => {
        const deviceMesh = initDeviceMesh('cpu', [2, 2], { meshDimNames: ['replica', 'shard'] });
        return assertTrainsAlike(Model, rank, 4, {
          shardingStrategy,
          deviceMesh,
          useOrigParams,
        });
      }),
    );

  for (const useOrigParams of [false, true]) {
    it(
      `trains shared parameters as one, with useOrigParams: ${useOrigParams}`,
      withRanks(3, (rank) => assertTrainsAlike(Tied, rank, 3, { useOrigParams })),
    );

    it(
      `keeps shards on the CPU with an offload, with useOrigParams: ${useOrigParams}`,
      withRanks(2, (rank) =>
        assertTrainsAlike(Model, rank, 2, {
          cpuOffload: new CPUOffload({ offloadParams: true }),
          useOrigParams,
        }),
      ),
    );
  }

  for (const backwardPrefetch of ['BACKWARD_PRE', 'BACKWARD_POST', null] as const)
    it(
      `trains with forward prefetch and backward prefetch ${backwardPrefetch}`,
      withRanks(2, (rank) =>
        assertTrainsAlike(Model, rank, 2, { forwardPrefetch: true, backwardPrefetch }),
      ),
    );

  it(
    'leaves frozen parameters as they are, with useOrigParams',
    withRanks(3, (rank) =>
      assertTrainsAlike(Model, rank, 3, { useOrigParams: true }, (model) => {
        (model.getParameter('first.up.weight') as nn.Parameter).requiresGrad_(false);
        (model.getParameter('second.bias') as nn.Parameter).requiresGrad_(false);
      }),
    ),
  );

  for (const [ranks, options] of [
    [2, {}],
    [1, { useOrigParams: true }],
    [3, { useOrigParams: true }],
    [2, { useOrigParams: true, shardingStrategy: 'NO_SHARD' }],
  ] as [number, FSDPOptions][]) {
    it(
      `leaves a frozen module as it is on ${ranks} ranks with ${JSON.stringify(options)}`,
      withRanks(ranks, (rank) =>
        assertTrainsAlike(Model, rank, ranks, options, (model) => {
          model.getSubmodule('first').requiresGrad_(false);
        }),
      ),
    );

    it(
      `leaves the frozen parameters of the root on ${ranks} ranks with ${JSON.stringify(options)}`,
      withRanks(ranks, (rank) =>
        assertTrainsAlike(Model, rank, ranks, options, (model) => {
          model.getSubmodule('second').requiresGrad_(false);
        }),
      ),
    );
  }

  it(
    'trains original parameters from when they are unfrozen',
    withRanks(2, async (rank) => {
      const plain = makeModel(Model).requiresGrad_(false);
      const model = wrap(makeModel(Model).requiresGrad_(false), { useOrigParams: true });
      const modules = [plain, model] as const;
      const optimizers = modules.map((each) => new optim.AdamW(each.parameters(), { lr: 0.01 }));
      model(batchOf(0, rank, 2));
      for (const each of modules) each.requiresGrad_(true);
      for (let i = 0; i < STEPS; i++) {
        step(plain, optimizers[0] as optim.Optimizer, batchOf(i, 0, 1));
        step(model, optimizers[1] as optim.Optimizer, batchOf(i, rank, 2));
      }
      const state = await valuesOf(Object.entries(model.stateDict()));
      assertClose(state, await valuesOf(plain.namedParameters()));
    }),
  );
});
