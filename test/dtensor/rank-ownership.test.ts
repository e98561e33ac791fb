/**
 * Tensors, meshes and groups of another rank of the process are refused with the name of their
 * rank.
 */
import assert from 'node:assert/strict';
import {
  allGatherObject,
  allReduce,
  barrier,
  type DeviceMesh,
  DistributedError,
  DTensor,
  distributeTensor,
  dtensorZeros,
  functional,
  initDeviceMesh,
  launch,
  Replicate,
  Shard,
} from '../../lib/distributed.js';
import { ones, type Tensor } from '../../lib/index.js';
import { errorOf } from '../distributed/support/on-ranks.js';

/** Rank 1 uses what rank 0 has made; rank 0 waits for its end. */
async function used(
  use: (t: Tensor, mesh: DeviceMesh, own: Tensor) => unknown,
): Promise<Error & { cause?: unknown }> {
  let [shared, theirs]: [Tensor | null, DeviceMesh | null] = [null, null];
  const begin = Date.now();
  const error = await errorOf(
    launch(
      2,
      async (rank) => {
        const mesh = initDeviceMesh('cpu', [2], { meshDimNames: ['tp'] });
        const own = distributeTensor(ones([4]), mesh, [Shard(0)]);
        if (rank === 0) [shared, theirs] = [own, mesh];
        await barrier();
        if (rank === 1)
          await use(shared as unknown as Tensor, theirs as unknown as DeviceMesh, own);
        await barrier();
      },
      { timeoutMs: 10_000 },
    ),
  );
  assert.ok(Date.now() - begin < 5000);
  return error;
}

describe('an object of another rank of the process', () => {
  const tensors: Record<string, (t: Tensor, mesh: DeviceMesh, own: Tensor) => unknown> = {
    'an op': (t) => t.add(1),
    'an op with an own tensor behind it': (t, _, own) => t.add(own),
    'toLocal()': (t) => t.toLocal(),
    'fullTensor()': (t) => t.fullTensor(),
    'redistribute()': (t) => t.redistribute([Replicate()]),
  };
  for (const [name, use] of Object.entries(tensors)) {
    it(`is refused as a tensor by ${name}`, async () => {
      const { message, cause } = await used(use);
      assert.match(
        message,
        /^rank 1 failed: \w+: the distributed tensor float32\[4\] on mesh \(tp: 2\): \[Shard\(0\)\] belongs to rank 0, and rank 1 uses it\. /,
      );
      assert.ok(cause instanceof DistributedError);
      assert.deepEqual([cause.details['owner'], cause.details['user']], ['rank 0', 'rank 1']);
    });
  }

  const meshes: Record<string, (t: Tensor, mesh: DeviceMesh, own: Tensor) => unknown> = {
    distributeTensor: (_, mesh) => distributeTensor(ones([4]), mesh, [Shard(0)]),
    'DTensor.fromLocal': (_, mesh) => DTensor.fromLocal(ones([4]), mesh, [Shard(0)]),
    dtensorZeros: (_, mesh) => dtensorZeros([4], { mesh, placements: [Shard(0)] }),
    redistribute: (_, mesh, own) => own.redistribute(mesh, [Shard(0)]),
    'an op with an own tensor before it': (t, _, own) => own.add(t),
  };
  for (const [name, use] of Object.entries(meshes)) {
    it(`is refused as a mesh by ${name}`, async () => {
      assert.match(
        (await used(use)).message,
        /^rank 1 failed: [\w.]+: the mesh \(tp: 2\) belongs to rank 0, and rank 1 uses it\. /,
      );
    });
  }

  const groups: Record<string, (t: Tensor, mesh: DeviceMesh) => unknown> = {
    allReduce: (_, mesh) => allReduce(ones([1]), { group: mesh.getGroup() }),
    'functional.allReduce': (_, mesh) => functional.allReduce(ones([1]), 'sum', mesh),
    barrier: (_, mesh) => barrier({ group: mesh.getGroup() }),
    allGatherObject: (_, mesh) => allGatherObject([0, 0], 1, { group: mesh.getGroup() }),
    allGather: (t) => t.read(), // reading is below ops
  };
  for (const [name, use] of Object.entries(groups)) {
    it(`is refused as a group by ${name}`, async () => {
      assert.match(
        (await used(use)).message,
        new RegExp(
          `^rank 1 failed: ${name}: group "world" belongs to rank 0, and rank 1 uses it\\.`,
        ),
      );
    });
  }

  it('may be inspected after its rank has ended', async () => {
    const [t] = await launch(2, () =>
      distributeTensor(ones([4]), initDeviceMesh('cpu', [2]), [Shard(0)]),
    );
    assert.deepEqual([...(await (t as Tensor).toLocal().read())], [1, 1]);
  });
});
