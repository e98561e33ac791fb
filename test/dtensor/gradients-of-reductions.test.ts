/** Gradients of reductions are whole on all ranks; what is behind them works on shards. */
import assert from 'node:assert/strict';
import { captureStep } from '../../lib/compile/index.js';
import { DTensor, initDeviceMesh, Replicate, Shard } from '../../lib/distributed.js';
import { manualSeed, nn, randn, type Tensor } from '../../lib/index.js';
import { timeline } from '../../lib/spmd/index.js';
import { onRanks, valuesOf } from '../distributed/support/on-ranks.js';
import { inFakeWorld } from '../spmd/support/fake-step.js';

const DIM = 16;
const ROWS = 8;
const losses: Record<string, (y: Tensor) => Tensor> = {
  sum: (y) => y.sum(),
  'sum of two': (y) => y.sum(0).sum(),
  mean: (y) => y.mean(),
  'a scaled sum': (y) => y.mul(3).neg().sum(),
  amax: (y) => y.amax(),
  norm: (y) => y.norm(),
  'norm of order 3': (y) => y.norm(3),
  var: (y) => y.var(),
  logsumexp: (y) => y.logsumexp(-1).sum(),
};

function modelOf(): nn.Module<[x: Tensor], Tensor> {
  manualSeed(1);
  return new nn.Sequential(
    new nn.Linear(DIM, DIM),
    new nn.Tanh(),
    new nn.Linear(DIM, DIM),
  ) as never;
}

describe('the gradient of a reduction of a tensor that is sharded', () => {
  for (const [name, loss] of Object.entries(losses)) {
    it(`is that of one rank: ${name}`, async () => {
      await onRanks(2, async (rank) => {
        const mesh = initDeviceMesh('cpu', [2]);
        const [plain, sharded] = [modelOf(), modelOf()];
        const whole = randn([ROWS, DIM]);
        for (const module of sharded.modules())
          if (module instanceof nn.Linear)
            for (const key of ['weight', 'bias'] as const)
              module[key] = new nn.Parameter(
                DTensor.fromLocal(module[key]!.detach(), mesh, [Replicate()]),
              ) as never;
        const part = whole.narrow(0, (rank * ROWS) / 2, ROWS / 2).clone();
        loss(plain(whole)).backward();
        loss(sharded(DTensor.fromLocal(part, mesh, [Shard(0)]))).backward();
        const expected = [...plain.parameters()];
        for (const [i, p] of [...sharded.parameters()].entries()) {
          const seen = await valuesOf((p.grad as DTensor).fullTensor());
          const wanted = await valuesOf(expected[i]!.grad!);
          seen.forEach((value, k) => assert.ok(Math.abs(Number(value) - Number(wanted[k])) < 1e-5));
        }
      });
    });

    it(`leaves each rank its part of the products: ${name}`, async () => {
      const flopsOf = (ranks: number): Promise<number> =>
        inFakeWorld(ranks, () => {
          const mesh = initDeviceMesh('cpu', [ranks]);
          const model = modelOf();
          const batch = randn([ROWS / ranks, DIM]);
          const replicated = (local: Tensor): Tensor =>
            DTensor.fromLocal(local, mesh, [Replicate()]);
          const { graph } = captureStep((x: Tensor) => loss(model(x)).backward(), [batch], {
            distribute: new Map([
              ...[...model.parameters()].map((p) => [p, replicated] as const),
              [batch, (local: Tensor) => DTensor.fromLocal(local, mesh, [Shard(0)])] as const,
            ]),
          });
          for (const node of graph.callNodes)
            for (const { shape } of node.metas)
              assert.ok(
                node.op?.view !== null || shape.length < 2 || shape[0] !== ROWS || ranks === 1,
                `%${node.name} is [${shape.join(', ')}]`,
              );
          return timeline(graph).entries.reduce((sum, { flops }) => sum + flops, 0);
        });
      assert.equal((await flopsOf(4)) * 4, await flopsOf(1));
    });
  }
});
