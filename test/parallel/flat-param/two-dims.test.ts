/** Flat parameters of the local shards of tensor parallelism. */
import assert from 'node:assert/strict';
import {
  ColwiseParallel,
  DTensor,
  FullyShardedDataParallel,
  initDeviceMesh,
  parallelizeModule,
  RowwiseParallel,
} from '../../../lib/distributed.js';
import { manualSeed, nn, optim, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import { assertClose, batchOf, step, type Values, valuesOf } from './models.js';

const STEPS = 5;

function mlp(hidden: number): nn.Sequential {
  manualSeed(0);
  return new nn.Sequential(
    new nn.Linear(6, hidden),
    new nn.ReLU(),
    new nn.Linear(hidden, 6),
    new nn.LayerNorm(6),
  ).double();
}

function trained(model: nn.Module, rank: number, ranks: number): optim.AdamW {
  const adam = new optim.AdamW(model.parameters(), { lr: 0.01 });
  for (let i = 0; i < STEPS; i++) step(model, adam, batchOf(i, rank, ranks));
  return adam;
}

function whole(state: Record<string, Tensor>): Promise<Values> {
  return valuesOf(
    Object.entries(state).map(([name, t]) => [name, t instanceof DTensor ? t.fullTensor() : t]),
  );
}

describe('flat parameters with tensor parallelism', () => {
  for (const hidden of [10, 9])
    for (const useOrigParams of [false, true])
      it(
        `train ${hidden} hidden features as one device, with useOrigParams: ${useOrigParams}`,
        withRanks(4, async () => {
          const mesh = initDeviceMesh('cpu', [2, 2], { meshDimNames: ['dp', 'tp'] });
          const [dp, tp] = [mesh.get('dp'), mesh.get('tp')];
          const plain = mlp(hidden);
          trained(plain, 0, 1);
          const expected = await valuesOf(Object.entries(plain.stateDict()));
          const inner = parallelizeModule(mlp(hidden), tp, {
            '0': ColwiseParallel(),
            '2': RowwiseParallel(),
          });
          const model = new FullyShardedDataParallel(inner, { deviceMesh: dp, useOrigParams });
          trained(model, dp.getLocalRank(), 2);
          assertClose(await whole(model.stateDict()), expected, 1e-9);

          const batch = batchOf(0, dp.getLocalRank(), 2);
          plain(batchOf(0, 0, 1))
            .square()
            .mean()
            .backward();
          model(batch).square().mean().backward();
          const norm = await model.clipGradNorm_(0.1).itemAsync();
          const wanted = await nn.utils.clipGradNorm_(plain.parameters(), 0.1).itemAsync();
          assert.ok(Math.abs(norm - wanted) < 1e-9, `${norm}, expected ${wanted}`);

          const other = mlp(hidden);
          for (const p of other.parameters()) p.detach().mul_(3);
          model.loadStateDict(other.stateDict());
          const loaded = await valuesOf(Object.entries(other.stateDict()));
          assertClose(await whole(model.stateDict()), loaded, 0);
        }),
      );
});
