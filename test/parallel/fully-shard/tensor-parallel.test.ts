/** fullyShard over the data-parallel dim of a mesh whose other dim is tensor parallel. */
import assert from 'node:assert/strict';
import {
  ColwiseParallel,
  type DeviceMesh,
  fullyShard,
  initDeviceMesh,
  parallelizeModule,
  RowwiseParallel,
} from '../../../lib/distributed.js';
import { float64, manualSeed, nn, randn, ShardingError, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import { adamOf, assertClose, BATCH, valuesOf } from './model.js';

class Mlp extends nn.Module {
  up: nn.Linear;
  down: nn.Linear;
  constructor(hidden: number) {
    super();
    this.up = new nn.Linear(10, hidden);
    this.down = new nn.Linear(hidden, 10);
  }
  forward(x: Tensor): Tensor {
    return this.down(this.up(x).relu());
  }
}

function mlp(hidden: number): Mlp {
  manualSeed(3);
  return new Mlp(hidden).double();
}

const mesh2d = (): DeviceMesh =>
  initDeviceMesh('cpu', [2, 2], { meshDimNames: ['dp', 'tp'] }) as DeviceMesh;

function parallel(model: Mlp, mesh: DeviceMesh): Mlp {
  parallelizeModule(model, mesh.get('tp'), { up: ColwiseParallel(), down: RowwiseParallel() });
  return fullyShard(model, { mesh: mesh.get('dp') });
}

const batchOf = (step: number): Tensor => {
  manualSeed(step + 50);
  return randn([BATCH, 10], { dtype: float64 });
};

describe('fullyShard with tensor parallelism', () => {
  it(
    'shards the local shards of tensor parallelism, which comes first in the order of shards',
    withRanks(4, () => {
      const model = parallel(mlp(16), mesh2d());
      assert.deepEqual(model.up.weight.toLocal().shape, [4, 10]);
      assert.deepEqual(model.up.weight.shape, [16, 10]);
      assert.deepEqual(model.down.weight.toLocal().shape, [5, 8]);
      assert.deepEqual(model.down.weight.placements.map(String), ['Shard(0)', 'Shard(1)']);
    }),
  );

  for (const hidden of [16, 10])
    it(
      `trains as one device with a hidden size of ${hidden}`,
      withRanks(4, async () => {
        const alone = mlp(hidden);
        const mesh = mesh2d();
        const model = parallel(mlp(hidden), mesh);
        const dp = mesh.getLocalRank('dp');
        const [adam, adamAlone] = [adamOf(model), adamOf(alone)];
        for (let step = 0; step < 10; step++) {
          const x = batchOf(step);
          alone(x).square().mean().backward();
          model(x.narrow(0, (dp * BATCH) / 2, BATCH / 2))
            .square()
            .mean()
            .backward();
          for (const each of [adam, adamAlone]) {
            each.step();
            each.zeroGrad();
          }
        }
        assertClose(await valuesOf(model), await valuesOf(alone));
      }),
    );

  it(
    'refuses meshes that are no slices of one mesh',
    withRanks(4, () => {
      const model = mlp(16);
      parallelizeModule(model, mesh2d().get('tp'), { up: ColwiseParallel() });
      assert.throws(
        () => fullyShard(model, { mesh: initDeviceMesh('cpu', [4]) }),
        (error: Error) =>
          error instanceof ShardingError && /slices of one mesh/.test(error.message),
      );
    }),
  );
});
