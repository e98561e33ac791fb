/** Scenarios of ranks with GPUs on two hosts. Each rank writes its results and times to a file. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  allGatherIntoTensor,
  allReduce,
  DeviceMesh,
  type DTensor,
  destroyProcessGroup,
  distributeTensor,
  getRank,
  getWorldSize,
  initDeviceMesh,
  initProcessGroup,
  newGroup,
  type ProcessGroup,
  Replicate,
  Shard,
  worldGroup,
} from '../../../lib/distributed.js';
import { arange, float32, full, type Tensor } from '../../../lib/index.js';

const [scenario, folder] = process.argv.slice(2) as [string, string];
const device = 'cuda' as const;
const filled = (count: number, value = 1): Tensor => full([count], value, { device });
const report = (seen: unknown): void =>
  writeFileSync(path.join(folder, `rank-${getRank()}.json`), JSON.stringify(seen));

/** Sums the tensor of all ranks, reads it, and reports the error that this ends with. */
async function reportSum(t: Tensor): Promise<void> {
  const begin = Date.now();
  const message = await failing(t, worldGroup());
  report({ message, ms: Date.now() - begin });
}

async function failing(t: Tensor, group: ProcessGroup): Promise<string> {
  try {
    allReduce(t, { group });
    await t.read();
    return 'no error';
  } catch (error) {
    return (error as Error).message;
  }
}

/**
 * Small and large sums, also between the hosts and in each, a gather in another order, and a
 * product of sharded matrices.
 */
async function computes(rank: number, size: number): Promise<void> {
  const sum = filled(100_003, rank + 1);
  allReduce(sum);
  const grid = initDeviceMesh(device, [2, size / 2]);
  const along = [0, 1].map((dim) => {
    const t = filled(3, 10 ** rank);
    allReduce(t, { group: grid.getGroup(dim) });
    return t;
  });
  const turned = new DeviceMesh(
    device,
    Array.from({ length: size }, (_, i) => size - 1 - i),
  );
  const gathered = filled(2 * size, -1);
  allGatherIntoTensor(gathered, filled(2, rank), { group: turned.getGroup() });
  const mesh = initDeviceMesh(device, [size]);
  const a = arange(24, { dtype: float32, device }).reshape([6, 4]);
  const b = arange(20, { dtype: float32, device }).reshape([4, 5]);
  const product = distributeTensor(a, mesh, [Shard(1)]).matmul(
    distributeTensor(b, mesh, [Shard(0)]),
  ) as DTensor;
  const whole = product.redistribute(mesh, [Replicate()]).toLocal();
  assert.deepEqual([...(await whole.read())], [...(await a.matmul(b).read())]);
  const numbers = async (t: Tensor): Promise<number[]> => [...(await t.read())].map(Number);
  const parts = (await Promise.all(along.map(numbers))).map(([value]) => value);
  report({
    sums: [await sum.amin().itemAsync(), await sum.amax().itemAsync()],
    parts,
    gathered: await numbers(gathered),
  });
}

const scenarios: Readonly<Record<string, (rank: number) => unknown>> = {
  computes: (rank) => computes(rank, getWorldSize()),
  /** Rank 1 has another shape. */
  shapes: (rank) => reportSum(filled(rank === 1 ? 5 : 4)),
  /** The same, and rank 0 leaves instead, in groups of which rank 1 is the first. */
  async turned(rank) {
    const [shapes, left] = [newGroup([1, 0]), newGroup([1, 0])];
    const heard = [await failing(filled(rank === 1 ? 5 : 4), shapes)];
    const first = filled(2);
    allReduce(first, { group: left });
    await first.read();
    if (rank === 0) destroyProcessGroup(left);
    else heard.push(await failing(filled(4), left));
    report({ message: heard.join('\n'), ms: 0 });
    await sleep(1_000);
  },
  async killed(rank) {
    // what the ranks hear of each other, not what the other node tells this one
    process.on('SIGTERM', () => {});
    if (rank === 1) await sleep(300);
    if (rank === 1) process.kill(process.pid, 'SIGKILL');
    await reportSum(filled(4));
  },
  /**
   * Rank 1 does not come within the timeout. Rank 0 stays until it has: the end of a node is the
   * end of the others.
   */
  async late(rank) {
    if (rank === 1) await sleep(6_000);
    await reportSum(filled(4));
    if (rank === 0) await sleep(7_000);
  },
};

await initProcessGroup();
const first = filled(2);
allReduce(first);
await first.read();
await scenarios[scenario]?.(getRank());
