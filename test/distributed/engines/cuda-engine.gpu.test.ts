/**
 * Collectives of GPU tensors among ranks of one process: by NCCL with a GPU each, through host
 * memory on a shared GPU.
 */
import assert from 'node:assert/strict';
import { runLocalRanks } from '../../../lib/distributed/local-ranks/run.js';
import {
  allGather,
  allReduce,
  allToAllSingle,
  broadcast,
  DeviceMesh,
  DTensor,
  distributeTensor,
  getRank,
  initDeviceMesh,
  newGroup,
  Replicate,
  reduceScatter,
  Shard,
} from '../../../lib/distributed.js';
import { cuda, full, manualSeed, randn, type Tensor, tensor } from '../../../lib/index.js';
import { runProgram } from '../../run-program.js';
import { skipBecause, skipWithoutCuda } from '../../skip.js';

const options = { timeoutMs: 30_000 };
const device = 'cuda' as const;
const values = async (t: Tensor): Promise<number[]> => [...(await t.read())].map(Number);

describe('a collective of GPU tensors', () => {
  before(function () {
    skipWithoutCuda(this);
  });

  // More ranks than GPUs share them, and go through the memory of the host.
  const worlds = (): number[] =>
    [cuda.deviceCount(), cuda.deviceCount() + 1].filter((size) => size > 1);

  it('reduces, gathers, scatters and exchanges by every engine', async () => {
    for (const size of worlds()) {
      await runLocalRanks(
        size,
        async (rank) => {
          for (const count of [3, 200_000, 2_000_000]) {
            const t = full([count], rank + 1, { device });
            allReduce(t);
            assert.deepEqual(new Set(await values(t)), new Set([(size * (size + 1)) / 2]));
          }
          const list = Array.from({ length: size }, (_, r) => full([r], 0, { device }));
          allGather(list, full([rank], rank, { device }));
          for (const [r, each] of list.entries())
            assert.deepEqual(await values(each), Array(r).fill(r));
          const own = full([rank], 0, { device });
          reduceScatter(
            own,
            list.map((_, r) => full([r], rank, { device })),
          );
          assert.deepEqual(await values(own), Array(rank).fill((size * (size - 1)) / 2));
          const b = full([2], rank, { device });
          broadcast(b, size - 1);
          assert.deepEqual(await values(b), [size - 1, size - 1]);
          const given = tensor(
            Array.from({ length: size }, (_, r) => 10 * rank + r),
            { device },
          );
          const taken = given.zerosLike();
          allToAllSingle(taken, given);
          assert.deepEqual(
            await values(taken),
            Array.from({ length: size }, (_, r) => 10 * r + rank),
          );
        },
        options,
      );
    }
  });

  it('runs in groups of some ranks', async () => {
    for (const size of worlds()) {
      await runLocalRanks(
        size,
        async (rank) => {
          const pair = newGroup([0, 1]);
          const t = full([2], getRank() + 1, { device });
          if (rank < 2) allReduce(t, { group: pair });
          assert.deepEqual(await values(t), rank < 2 ? [3, 3] : [rank + 1, rank + 1]);
        },
        options,
      );
    }
  });

  // Their groups are cut out of that of all ranks.
  it('runs along the dims of a mesh of all ranks', async function () {
    if (cuda.deviceCount() < 4) skipBecause(this, 'fewer than 4 GPUs');
    await runLocalRanks(
      4,
      async (rank) => {
        const sumAlong = async (mesh: DeviceMesh, dim: number): Promise<number> => {
          const t = full([2], 10 ** rank, { device });
          allReduce(t, { group: mesh.getGroup(dim) });
          return (await values(t))[0] as number;
        };
        const mesh = initDeviceMesh(device, [2, 2], { meshDimNames: ['dp', 'tp'] });
        assert.equal(await sumAlong(mesh, 0), [101, 1010, 101, 1010][rank]);
        assert.equal(await sumAlong(mesh, 1), [11, 11, 1100, 1100][rank]);
        const all = full([1], 10 ** rank, { device });
        allReduce(all);
        assert.deepEqual(await values(all), [1111]);
        // Of its groups, [0, 1] is there, the others are not.
        const other = new DeviceMesh(
          device,
          [
            [0, 1],
            [3, 2],
          ],
          { meshDimNames: ['dp', 'tp'] },
        );
        assert.equal(other.getGroup('tp') === mesh.getGroup('tp'), rank < 2);
        assert.equal(await sumAlong(other, 1), [11, 11, 1100, 1100][rank]);
        assert.equal(await sumAlong(other, 0), [1001, 110, 110, 1001][rank]);
        assert.equal(await sumAlong(initDeviceMesh(device, [1, 4]), 1), 1111);
        assert.equal(await sumAlong(initDeviceMesh(device, [4, 1]), 1), 10 ** rank);
      },
      options,
    );
  });

  it('runs in a mesh of all ranks in another order', async () => {
    for (const size of worlds()) {
      await runLocalRanks(
        size,
        async (rank) => {
          const reversed = Array.from({ length: size }, (_, i) => size - 1 - i);
          const group = new DeviceMesh(device, reversed).getGroup();
          const list = reversed.map(() => full([1], -1, { device }));
          allGather(list, full([1], rank, { device }), { group });
          assert.deepEqual((await Promise.all(list.map(values))).flat(), reversed);
          const t = full([1], rank, { device });
          allReduce(t); // that of all ranks goes on as before
          assert.deepEqual(await values(t), [(size * (size - 1)) / 2]);
        },
        options,
      );
    }
  });

  it('computes products of distributed tensors and their gradients', async () => {
    for (const size of worlds()) {
      await runLocalRanks(
        size,
        async () => {
          manualSeed(1);
          const mesh = initDeviceMesh(device, [size]);
          const [a, b] = [randn([5, 8], { device }), randn([8, 6], { device })];
          const [x, y] = [a.clone().requiresGrad_(), b.clone().requiresGrad_()];
          x.matmul(y).relu().sum().backward();
          const da = distributeTensor(a, mesh, [Shard(1)]).requiresGrad_();
          const db = distributeTensor(b, mesh, [Shard(0)]).requiresGrad_();
          const out = da.matmul(db).relu();
          out.sum().backward();
          assert.ok(out instanceof DTensor);
          for (const [mine, reference] of [
            [da, x],
            [db, y],
          ] as const) {
            const difference = (mine.grad as Tensor).fullTensor().sub(reference.grad as Tensor);
            assert.ok(Number(await difference.abs().amax().itemAsync()) < 1e-5);
          }
          const whole = distributeTensor(a, mesh, [Replicate()])
            .redistribute([Shard(0)])
            .fullTensor();
          assert.equal(await whole.sub(a).abs().amax().itemAsync(), 0);
        },
        options,
      );
    }
  });

  // CUDA loads a kernel with its first launch, and waits for all GPUs of the process meanwhile.
  it('does not deadlock with the first kernel launch of another rank of the process', async function () {
    if (cuda.deviceCount() < 2) skipBecause(this, 'fewer than 2 GPUs');
    const seen = await runProgram<number[][]>('distributed/programs/first-kernel-launch');
    for (const sums of seen)
      for (const sum of sums) assert.ok(Math.abs(sum - 1) < 1e-3, String(sums));
  });

  it('fails on all ranks if one does not come', async () => {
    for (const size of worlds()) {
      const failed = runLocalRanks(
        size,
        async (rank) => {
          const t = full([4], 1, { device });
          allReduce(t);
          await t.read();
          if (rank === 0) await new Promise((resolve) => setTimeout(resolve, 3_000));
          else {
            allReduce(t);
            await t.read();
          }
        },
        { timeoutMs: 1_000 },
      );
      await assert.rejects(failed, /allReduce/);
    }
  });
});
