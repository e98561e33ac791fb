/**
 * Values and gradients of PyTorch's own tests of distributed tensors.
 */
import assert from 'node:assert/strict';
import {
  DeviceMesh,
  DTensor,
  DTensorSpec,
  distributeTensor,
  initDeviceMesh,
  Partial,
  type Placement,
  Replicate,
  Shard,
} from '../../lib/distributed.js';
import { arange, float32, nn, ones, rand, type Tensor, zeros } from '../../lib/index.js';
import { reusedRanks } from '../distributed/support/reused-ranks.js';

const WORLD = 4;
const [R, S0, S1, P] = [Replicate(), Shard(0), Shard(1), Partial()];

const numbers = async (t: Tensor): Promise<number[]> => Array.from(await t.read(), Number);

describe("values of PyTorch's tests of distributed tensors: ", () => {
  const ranks = reusedRanks(WORLD);

  it('a product of sharded tensors, replicated, and its gradients', async () => {
    await ranks.run(async () => {
      const mesh = initDeviceMesh('cpu', [WORLD]);
      const [x, y] = [
        arange(8, { dtype: float32, requiresGrad: true }),
        arange(8, { dtype: float32, requiresGrad: true }),
      ];
      const product = DTensor.fromLocal(x.reshape([2, 4]), mesh, [S0]).matmul(
        DTensor.fromLocal(y.reshape([4, 2]), mesh, [S1]),
      );
      const result = product.redistribute(mesh, [R]).toLocal();
      result.sum().backward();
      const tile = [28, 34, 76, 98];
      const expected = Array.from(
        { length: 64 },
        (_, i) => tile[2 * (Math.floor(i / 8) % 2) + (i % 2)],
      );
      assert.deepEqual(await numbers(result), expected);
      assert.deepEqual(await numbers(result.sum()), [3776]);
      assert.deepEqual(await numbers(x.grad as Tensor), [4, 20, 36, 52, 4, 20, 36, 52]);
      assert.deepEqual(await numbers(y.grad as Tensor), [16, 16, 24, 24, 32, 32, 40, 40]);
    });
  });

  it('the predicates of placements', () => {
    const value = (p: Placement): number =>
      p.isReplicate()
        ? 1
        : p.isShard() && p.isShard(0) && p.isShard(p.dim) && p.isShard(null)
          ? 8
          : p.isPartial()
            ? 3
            : 0;
    assert.deepEqual([S0, R, P].map(value), [8, 1, 3]);
  });

  it('the attributes of a mesh, with one group object', async () => {
    await ranks.run((rank) => {
      const mesh = DeviceMesh('cpu', [0, 1]);
      assert.equal(mesh.size() + mesh.size(0) + mesh.size(-1), 6);
      assert.deepEqual(mesh.getCoordinate(), rank < 2 ? [rank] : null);
      if (rank < 2) assert.equal(mesh.getGroup(), mesh.getGroup(0));
    });
  });

  it('fromLocal, toLocal and a number', async () => {
    await ranks.run(async () => {
      const mesh = initDeviceMesh('cpu', [WORLD]);
      const x = ones([1], { requiresGrad: true });
      const out = DTensor.fromLocal(x, mesh, [R], { runCheck: false }).toLocal().add(2);
      out.backward();
      assert.deepEqual([await numbers(out), await numbers(x.grad as Tensor)], [[3], [1]]);
      const gathered = DTensor.fromLocal(ones([1]), mesh, [S0])
        .redistribute(mesh, [R], { asyncOp: true })
        .toLocal()
        .add(2);
      assert.deepEqual(await numbers(gathered), [3, 3, 3, 3]);
      const kept = DTensor.fromLocal(ones([4]), mesh, [S0])
        .toLocal({ gradPlacements: [S0] })
        .add(2);
      assert.deepEqual(await numbers(kept), [3, 3, 3, 3]);
    });
  });

  it('partial values that are scattered unevenly', async () => {
    await ranks.run((rank) => {
      const mesh = DeviceMesh('cpu', [1, 3]);
      const result = DTensor.fromLocal(ones([10, 257, 160]), mesh, [P]).redistribute(mesh, [S1]);
      assert.deepEqual(
        [result.shape, result.stride()],
        [
          [10, 257, 160],
          [41120, 160, 1],
        ],
      );
      const { shape } = result._localTensor;
      assert.deepEqual(shape, rank === 1 ? [10, 129, 160] : rank === 3 ? [10, 128, 160] : [0]);
      if (rank === 3) result.toLocal().sum();
    });
  });

  it('the constructor with a local shard and a spec', async () => {
    await ranks.run((rank) => {
      const mesh = initDeviceMesh('cpu', [2, 2]);
      const spec = DTensorSpec(mesh, [R, S0], {
        tensorMeta: { shape: [128, 32], strides: [32, 1], dtype: float32 },
      });
      const local = zeros([64, 32]);
      const t = new DTensor(local, spec, { requiresGrad: true });
      assert.ok(t instanceof DTensor && t.requiresGrad);
      assert.deepEqual(
        [t.shape, t._localTensor.shape],
        [
          [128, 32],
          [64, 32],
        ],
      );
      assert.equal(t.untypedStorage(), local.untypedStorage(), `rank ${rank}`);
    });
  });

  it('a linear layer with a sharded contracted dim gives Partial, and strides that are not row-major', async () => {
    await ranks.run(async () => {
      const mesh = initDeviceMesh('cpu', [WORLD]);
      const weight = distributeTensor(rand([16, 4], { requiresGrad: true }), mesh, [S1]);
      const bias = distributeTensor(rand([16], { requiresGrad: true }), mesh, [R]);
      const x = distributeTensor(rand([4, 16, 4], { requiresGrad: true }), mesh, [S1]);
      const out = nn.functional
        .linear(x.permute([0, 2, 1]).contiguous().permute([0, 2, 1]), weight, bias)
        .permute([0, 2, 1]);
      out.contiguous().sum().backward();
      assert.deepEqual(x.grad?.placements, [S1]);
      assert.deepEqual(weight.grad?.placements, [S1]);
      assert.deepEqual(await numbers((bias.grad as Tensor).toLocal()), Array(16).fill(64));
    });
  });

  it('Partial plus itself stays Partial', async () => {
    await ranks.run(async () => {
      const mesh = initDeviceMesh('cpu', [WORLD]);
      const x = DTensor.fromLocal(ones([10, 10], { requiresGrad: true }), mesh, [P]);
      const twice = x.add(x);
      assert.deepEqual(twice.placements, [P]);
      const out = twice.matmul(distributeTensor(ones([10, 10]), mesh, [R])).sum();
      out.backward();
      assert.deepEqual(await numbers(out.fullTensor()), [10 * 10 * 10 * 8]);
    });
  });

  it('gradients with other placements than their results', async () => {
    await ranks.run(async () => {
      const mesh = initDeviceMesh('cpu', [WORLD]);
      const [weight, bias] = [ones([4]), zeros([4])].map((t) =>
        distributeTensor(t.requiresGrad_(), mesh, [R]),
      ) as [Tensor, Tensor];
      const x = distributeTensor(rand([4, 2, 4], { requiresGrad: true }), mesh, [S1]);
      const normed = nn.functional.layerNorm(
        x.permute([0, 2, 1]).contiguous().permute([0, 2, 1]),
        [4],
        weight,
        bias,
      );
      const y = distributeTensor(rand([4, 2, 4]), mesh, [S1]).permute([0, 2, 1]);
      normed.matmul(y).permute([0, 2, 1]).sum().backward();
      assert.deepEqual([x.grad?.placements, weight.grad?.placements], [[S1], [R]]);
    });
  });
});
