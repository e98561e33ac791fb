/**
 * The default mesh of DeviceMesh.run, PyTorch's `with mesh:`.
 */
import assert from 'node:assert/strict';
import {
  barrier,
  ColwiseParallel,
  DTensor,
  distributeModule,
  distributeTensor,
  dtensorOnes,
  getCurrentMesh,
  initDeviceMesh,
  parallelizeModule,
  Replicate,
  Shard,
} from '../../lib/distributed.js';
import { nn, ones, type Tensor } from '../../lib/index.js';
import { withRanks } from '../../lib/testing/index.js';

describe('DeviceMesh.run', () => {
  it(
    'sets the default mesh of its rank, also across await',
    withRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2], { meshDimNames: ['tp'] });
      const made = await mesh.run(async () => {
        await barrier();
        assert.equal(getCurrentMesh(), mesh);
        const layer = parallelizeModule(new nn.Linear(2, 4), undefined, ColwiseParallel());
        const norm = distributeModule(new nn.LayerNorm(4));
        return [
          dtensorOnes([4], { placements: [Shard(0)] }),
          distributeTensor(ones([4]), undefined, [Shard(0)]),
          DTensor.fromLocal(ones([4])),
          layer.weight,
          norm.weight,
        ];
      });
      for (const t of made as Tensor[]) assert.equal(t.deviceMesh, mesh);
      assert.deepEqual(
        (made as Tensor[]).map(({ placements }) => placements),
        [[Shard(0)], [Shard(0)], [Replicate()], [Shard(0)], [Replicate()]],
      );
    }),
  );

  it(
    'ends with its function; the innermost call counts, and an explicit mesh wins',
    withRanks(2, () => {
      const [outer, inner] = [initDeviceMesh('cpu', [2]), initDeviceMesh('cpu', [1, 2])];
      outer.run(() => {
        assert.equal(
          inner.run(() => getCurrentMesh()),
          inner,
        );
        assert.equal(getCurrentMesh(), outer);
        assert.equal(dtensorOnes([2], { mesh: inner }).deviceMesh, inner);
        assert.throws(() => inner.run(() => assert.fail('thrown inside')), /thrown inside/);
        assert.equal(getCurrentMesh(), outer);
      });
      assert.throws(
        () => distributeTensor(ones([2])),
        /^ArgumentError.*distributeTensor: expected mesh to be a DeviceMesh, got none\. Give one, or call it inside mesh\.run/,
      );
      assert.throws(
        () => dtensorOnes([2], {}),
        /dtensorOnes: expected mesh to be a DeviceMesh, got none/,
      );
      assert.throws(() => outer.run(1 as never), /DeviceMesh\.run: expected fn to be a function/);
    }),
  );
});
