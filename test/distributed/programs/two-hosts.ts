/** Scenarios of ranks on two hosts. Each rank writes its results to a file. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  allReduce,
  barrier,
  type DTensor,
  distributeTensor,
  getRank,
  getWorldSize,
  initDeviceMesh,
  initProcessGroup,
  newGroup,
  Replicate,
  Shard,
} from '../../../lib/distributed.js';
import { arange, float32, full, ones } from '../../../lib/index.js';

const [scenario, folder] = process.argv.slice(2) as [string, string];

function report(seen: unknown): void {
  writeFileSync(path.join(folder, `rank-${getRank()}.json`), JSON.stringify(seen));
}

/** All ranks, those of a host, and one of each: sums, and a product of sharded matrices. */
async function computes(rank: number, size: number): Promise<void> {
  const all = full([100_003], rank);
  allReduce(all);
  const pairs = [newGroup([0, 1]), newGroup([2, 3]), newGroup([1, 2])];
  const sums = pairs.map((group) => {
    const x = full([2], rank + 1);
    if (group.rank >= 0) allReduce(x, { group });
    return group.rank < 0 ? null : (x.tolist() as number[])[0];
  });
  const mesh = initDeviceMesh('cpu', [2, 2], { meshDimNames: ['host', 'local'] });
  const a = arange(24, { dtype: float32 }).reshape([6, 4]);
  const b = arange(20, { dtype: float32 }).reshape([4, 5]);
  const product = distributeTensor(a, mesh, [Shard(0), Shard(1)]).matmul(
    distributeTensor(b, mesh, [Replicate(), Shard(0)]),
  ) as DTensor;
  const whole = product.redistribute(mesh, [Replicate(), Replicate()]).toLocal();
  assert.deepEqual(whole.tolist(), a.matmul(b).tolist());
  await barrier();
  report({ size, most: [all.amin().item(), all.amax().item()], sums });
}

/** Goes on until it fails: its link is cut meanwhile. */
async function goesOn(): Promise<void> {
  const x = ones([100_000]);
  for (let step = 0; ; step++) {
    allReduce(x, { op: 'avg' });
    try {
      await x.read();
    } catch (error) {
      report({ error: (error as Error).message, at: Date.now() });
      process.exit(3);
    }
    if (step === 20) report('ready');
    await sleep(5);
  }
}

await initProcessGroup();
await (scenario === 'computes' ? computes(getRank(), getWorldSize()) : goesOn());
