/**
 * redistribute, toLocal, fromLocal and fullTensor: their gradients in all placements, and their
 * errors.
 */
import assert from 'node:assert/strict';
import {
  type DeviceMesh,
  DTensor,
  distributeTensor,
  initDeviceMesh,
  Partial,
  type Placement,
  Replicate,
  Shard,
} from '../../lib/distributed.js';
import { arange, float32, ones, rand, type Tensor } from '../../lib/index.js';
import { reusedRanks } from '../distributed/support/reused-ranks.js';

const WORLD = 4;
const [R, S0, S1, P] = [Replicate(), Shard(0), Shard(1), Partial()];

const numbers = async (t: Tensor): Promise<number[]> => Array.from(await t.read(), Number);

/** A local gradient that says whose it is. */
const scaled = (t: Tensor, value: number): Tensor => t.newFull(t.shape, value);

describe('conversion between plain and distributed tensors', () => {
  const ranks = reusedRanks(WORLD);
  const each = (name: string, fn: (rank: number, mesh: DeviceMesh) => Promise<void>): void => {
    it(
      name,
      async () => void (await ranks.run((rank) => fn(rank, initDeviceMesh('cpu', [WORLD])))),
    );
  };

  each('toLocal takes local gradients as the shards of the gradient', async (rank, mesh) => {
    const t = distributeTensor(ones([6, 2], { requiresGrad: true }), mesh, [S0]);
    const local = t.toLocal();
    local.backward(scaled(local, rank + 1));
    assert.deepEqual(t.grad?.placements, [S0]);
    assert.deepEqual(
      await numbers((t.grad as Tensor).fullTensor()),
      [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3],
    );
  });

  each(
    'toLocal of a replicated tensor takes its own gradient as the whole gradient',
    async (_, mesh) => {
      const t = distributeTensor(ones([2], { requiresGrad: true }), mesh);
      t.toLocal().backward(ones([2]));
      assert.deepEqual(
        [t.grad?.placements, await numbers((t.grad as Tensor).toLocal())],
        [[R], [1, 1]],
      );
    },
  );

  each(
    'toLocal with gradPlacements Partial adds the gradients of all ranks',
    async (rank, mesh) => {
      const t = distributeTensor(ones([2], { requiresGrad: true }), mesh);
      const local = t.toLocal({ gradPlacements: [P] });
      local.backward(scaled(local, rank + 1));
      assert.deepEqual(
        [t.grad?.placements, await numbers((t.grad as Tensor).toLocal())],
        [[R], [10, 10]],
      );
    },
  );

  each(
    'toLocal refuses a gradient that does not have the shape of gradPlacements',
    async (rank, mesh) => {
      const t = distributeTensor(ones([WORLD, 2], { requiresGrad: true }), mesh);
      const local = t.toLocal({ gradPlacements: [S0] }).narrow(0, 0, 1);
      await assert.rejects(
        async () => local.backward(scaled(local, rank + 1)),
        (error: Error) =>
          /^toLocal, in backward: expected the local shard of .* to have shape \[1, 2\], got \[4, 2\]\. .*distributeTensor/.test(
            error.message,
          ),
      );
    },
  );

  each(
    'fromLocal refuses a local tensor that does not fit the shape, with advice',
    async (_, mesh) => {
      const whole = { shape: [WORLD, 3], stride: [3, 1] };
      assert.throws(
        () => DTensor.fromLocal(ones([WORLD, 3]), mesh, [S0], whole),
        (error: Error) =>
          /^DTensor\.fromLocal: expected the local shard of float32\[4, 3\] .* shape \[1, 3\], got \[4, 3\]\. .*distributeTensor\(t, mesh/.test(
            error.message,
          ),
      );
      assert.throws(
        () => DTensor.fromLocal(ones([2, 3]), mesh, [S0], whole),
        (error: Error) =>
          /^DTensor\.fromLocal: .*got \[2, 3\]\. shape and stride are those of the whole/.test(
            error.message,
          ),
      );
    },
  );

  each('toLocal of a Partial tensor gives each rank its own gradient', async (rank, mesh) => {
    const leaf = scaled(ones([3]), rank).requiresGrad_();
    const local = DTensor.fromLocal(leaf, mesh, [P]).toLocal();
    local.backward(scaled(local, rank + 1));
    assert.deepEqual(await numbers(leaf.grad as Tensor), [rank + 1, rank + 1, rank + 1]);
  });

  it('fromLocal takes a shard order; a wrong one is refused, also by redistribute', async () => {
    await ranks.run(async () => {
      const mesh = initDeviceMesh('cpu', [2, 2]);
      const t = distributeTensor(arange(6, { dtype: float32 }), mesh, [S0, S0]);
      const turned = t.redistribute([S0, S0], { shardOrder: [[1, 0]] });
      const back = DTensor.fromLocal(turned.toLocal().mul(2), mesh, turned.placements, {
        shape: [6],
        stride: [1],
        shardOrder: turned._spec.order,
      });
      assert.deepEqual(await numbers(back.fullTensor()), [0, 2, 4, 6, 8, 10]);
      for (const shardOrder of [[[0]], [[5, 0]], [[0, 0]], [[], [1, 0]], 'x'] as number[][][]) {
        assert.throws(
          () => t.redistribute([S0, S0], { shardOrder }),
          /redistribute: expected shardOrder/,
        );
        assert.throws(
          () => DTensor.fromLocal(t.toLocal(), mesh, [S0, S0], { shardOrder }),
          /DTensor.fromLocal: expected shardOrder/,
        );
      }
    });
  });

  each(
    'fromLocal gives the local shard of a gradient with other placements',
    async (rank, mesh) => {
      const leaf = ones([2, 3], { requiresGrad: true });
      const t = DTensor.fromLocal(leaf, mesh, [S0]);
      t.backward(DTensor.fromLocal(arange(24, { dtype: float32 }).reshape([8, 3]), mesh, [R]));
      assert.deepEqual(
        await numbers(leaf.grad as Tensor),
        Array.from({ length: 6 }, (_, i) => rank * 6 + i),
      );
    },
  );

  each(
    'fromLocal of partial values gives every rank the whole gradient, undivided',
    async (_, mesh) => {
      const leaf = ones([2], { requiresGrad: true });
      DTensor.fromLocal(leaf, mesh, [P])
        .redistribute([R])
        .toLocal()
        .backward(ones([2]));
      assert.deepEqual(await numbers(leaf.grad as Tensor), [1, 1]);
    },
  );

  each('fromLocal reduces a gradient that is Partial', async (rank, mesh) => {
    const leaf = ones([2], { requiresGrad: true });
    DTensor.fromLocal(leaf, mesh, [R]).backward(DTensor.fromLocal(scaled(leaf, rank), mesh, [P]));
    assert.deepEqual(await numbers(leaf.grad as Tensor), [6, 6]);
  });

  each(
    'redistribute brings gradients to the placements of its input, even if it moves nothing',
    async (_, mesh) => {
      for (const [from, to] of [
        [S0, R],
        [R, S0],
        [S0, S1],
        [S0, S0],
        [R, R],
      ] as [Placement, Placement][]) {
        const t = distributeTensor(rand([5, 6], { requiresGrad: true }), mesh, [from]);
        const values = arange(30, { dtype: float32 }).reshape([5, 6]);
        t.redistribute([to]).backward(distributeTensor(values, mesh, [S1]));
        assert.deepEqual(t.grad?.placements, [from]);
        assert.deepEqual(await numbers((t.grad as Tensor).fullTensor()), await numbers(values));
      }
    },
  );

  each(
    'fullTensor takes the gradient of each rank, or with gradPlacements their sum',
    async (rank, mesh) => {
      const t = distributeTensor(ones([5], { requiresGrad: true }), mesh, [S0]);
      const whole = t.fullTensor();
      whole.backward(scaled(whole, 2));
      assert.deepEqual(
        [t.grad?.placements, await numbers((t.grad as Tensor).fullTensor())],
        [[S0], [2, 2, 2, 2, 2]],
      );
      const other = distributeTensor(ones([5], { requiresGrad: true }), mesh, [S0]);
      const again = other.fullTensor({ gradPlacements: [P] });
      again.backward(scaled(again, rank));
      assert.deepEqual(
        [other.grad?.placements, await numbers((other.grad as Tensor).fullTensor())],
        [[S0], [6, 6, 6, 6, 6]],
      );
    },
  );
});

describe('distributed tensors refuse', () => {
  const ranks = reusedRanks(WORLD);
  const refuses = (name: string, message: RegExp, fn: (mesh: DeviceMesh) => unknown): void => {
    it(name, async () => {
      await ranks.run(() =>
        assert.throws(
          () => fn(initDeviceMesh('cpu', [2, 2], { meshDimNames: ['dp', 'tp'] })),
          message,
        ),
      );
    });
  };
  const whole = (mesh: DeviceMesh): Tensor => distributeTensor(ones([4, 4]), mesh, [S0, R]);

  refuses(
    'redistribute to another mesh',
    /own DeviceMesh\(cpu, dp: 2, tp: 2\), got another mesh, DeviceMesh\(cpu, 4\)\. Take fullTensor\(\)/,
    (mesh) => whole(mesh).redistribute(initDeviceMesh('cpu', [4]), [S0]),
  );
  refuses(
    'redistribute to Partial',
    /mesh dim tp cannot go from Replicate\(\) to Partial\(sum\): only an op that computes partial values produces Partial/,
    (mesh) => whole(mesh).redistribute([S0, P]),
  );
  refuses(
    'redistribute from one Partial to another',
    /cannot go from Partial\(sum\) to Partial\(max\)/,
    (mesh) => DTensor.fromLocal(ones([2]), mesh, [P, R]).redistribute([Partial('max'), R]),
  );
  refuses(
    'too few placements',
    /expected 2 placements, one for each dim of the mesh \(dp: 2, tp: 2\), got 1/,
    (mesh) => whole(mesh).redistribute([S0]),
  );
  refuses(
    'an operand on another mesh',
    /add: expected all tensors on one mesh, got one on mesh \(dp: 2, tp: 2\)/,
    (mesh) => whole(mesh).add(distributeTensor(ones([4, 4]), initDeviceMesh('cpu', [4]))),
  );
  refuses(
    'distributeTensor with Partial',
    /expected Shard or Replicate, got \[Partial\(sum\), Replicate\(\)\]/,
    (mesh) => distributeTensor(ones([2]), mesh, [P, R]),
  );
  refuses('distributeTensor of a computed tensor', /expected a leaf tensor/, (mesh) =>
    distributeTensor(ones([2], { requiresGrad: true }).mul(2), mesh),
  );
  refuses('fromLocal of a distributed tensor', /expected a plain tensor/, (mesh) =>
    DTensor.fromLocal(whole(mesh), mesh),
  );
  refuses('fromLocal with a shape and no stride', /expected both shape and stride/, (mesh) =>
    DTensor.fromLocal(ones([2]), mesh, [S0, R], { shape: [4] }),
  );
  refuses('a shard dim that does not exist', /Shard\(2\) does not fit a tensor of 2 dims/, (mesh) =>
    whole(mesh).redistribute([Shard(2), R]),
  );
  refuses(
    'placements of a plain tensor',
    /placements: expected a distributed tensor, got a plain one/,
    () => ones([2]).placements,
  );
});
