/**
 * Meshes of equal ranks, shape and names are interchangeable.
 */
import assert from 'node:assert/strict';
import {
  DeviceMesh,
  DTensor,
  distributeTensor,
  initDeviceMesh,
  newGroup,
  parallelizeModule,
  Replicate,
  RowwiseParallel,
  Shard,
} from '../../lib/distributed.js';
import { manualSeed, nn, ones, randn, type Tensor } from '../../lib/index.js';
import { withRanks } from '../../lib/testing/index.js';

const grid = (): DeviceMesh => initDeviceMesh('cpu', [2, 2], { meshDimNames: ['dp', 'tp'] });
/** The mesh that is the slice of this rank. */
const rootOf = (rank: number): DeviceMesh =>
  DeviceMesh('cpu', rank < 2 ? [0, 1] : [2, 3], { meshDimNames: ['tp'] });

describe('equal meshes', () => {
  it(
    'have one group, however a rank created them',
    withRanks(4, async (rank) => {
      // Half of the ranks make the slice first, the others the mesh of its own.
      const meshes =
        rank % 2 === 0 ? [grid().get('tp'), rootOf(rank)] : [rootOf(rank), grid().get('tp')];
      const [first, second] = meshes as [DeviceMesh, DeviceMesh];
      assert.notEqual(first, second);
      assert.ok(first.equals(second));
      assert.equal(first.getGroup(), second.getGroup());
      const t = distributeTensor(ones([4, 2]), first, [Shard(0)]);
      assert.deepEqual(await t.sum().fullTensor().read(), new Float32Array([8]));
    }),
  );

  it(
    'can be mixed in ops, redistribute and modules',
    withRanks(4, async (rank) => {
      const [slice, root] = [grid().get('tp'), rootOf(rank)];
      manualSeed(3);
      const [a, b] = [randn([4, 6]), randn([6, 2])];
      const x = distributeTensor(a, slice, [Shard(1)]);
      const w = distributeTensor(b, root, [Shard(0)]).requiresGrad_();
      assert.equal(distributeTensor(x, root, [Shard(1)]), x);
      const product = x.matmul(w);
      const difference = await product.fullTensor().sub(a.matmul(b)).abs().amax().itemAsync();
      assert.ok(difference < 1e-5);
      product.sum().backward();
      assert.ok(w.grad instanceof DTensor);
      assert.equal(x.redistribute(root, [Shard(0)])._spec, x.redistribute(slice, [Shard(0)])._spec);
      const [layer, tied] = [new nn.Linear(4, 2), new nn.Linear(4, 2)];
      tied.weight = layer.weight;
      parallelizeModule(layer, slice, RowwiseParallel());
      parallelizeModule(tied, root, RowwiseParallel());
      assert.equal(tied.weight, layer.weight);
    }),
  );

  it(
    'are different meshes if one was created from its own groups',
    withRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2], { meshDimNames: ['tp'] });
      const other = DeviceMesh.fromGroup(newGroup([0, 1]), 'cpu', { meshDimNames: ['tp'] });
      assert.ok(mesh.equals(other));
      assert.notEqual(mesh.getGroup(), other.getGroup());
      const [x, y] = [mesh, other].map((m) => distributeTensor(ones([2]), m, [Replicate()])) as [
        Tensor,
        Tensor,
      ];
      assert.throws(() => x.add(y), /expected all tensors on one mesh/);
      assert.throws(() => x.redistribute(other, [Shard(0)]), /got another mesh/);
    }),
  );
});
