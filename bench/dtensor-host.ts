/**
 * Host time of ops on distributed tensors, for four ranks in one process: microseconds per op on
 * the JavaScript thread.
 */

import { runLocalRanks } from '../lib/distributed/local-ranks/run.js';
import { DTensor, initDeviceMesh, Replicate, Shard } from '../lib/distributed.js';
import { manualSeed, rand } from '../lib/index.js';
import { median } from './figures.js';
import { print } from './measure.js';

const WORLD = 4;
/** Calls after which the engine has compiled the code. */
const WARM_UP = 6_000;
const BURST = 100;
const REPEATS = 61;

/**
 * The times of this rank. Ranks take turns for each burst, and each waits for its device before the
 * next one starts.
 */
async function times(fn: () => { dispose(): void; read(): Promise<unknown> }): Promise<number> {
  const bursts: number[] = [];
  const rounds = WARM_UP / BURST + REPEATS;
  for (let r = 0; r < rounds; r++) {
    const start = performance.now();
    for (let i = 1; i < BURST; i++) fn().dispose();
    const last = fn();
    if (r >= rounds - REPEATS) bursts.push(((performance.now() - start) / BURST) * 1e3);
    await last.read();
    last.dispose();
  }
  return median(bursts);
}

await runLocalRanks(
  WORLD,
  async (rank) => {
    manualSeed(rank);
    const mesh = initDeviceMesh('cpu', [WORLD]);
    const rows = DTensor.fromLocal(rand([2, 8]), mesh, [Shard(0)]);
    const weight = DTensor.fromLocal(rand([8, 8]), mesh, [Replicate()]);
    const plain = rand([2, 8]);
    const own = rand([8, 8]);
    const measured: [string, number][] = [
      ['add of plain tensors', await times(() => plain.add(plain))],
      ['add, both Shard(0)', await times(() => rows.add(rows))],
      ['matmul of plain tensors', await times(() => plain.matmul(own))],
      ['matmul, Shard(0) x Replicate', await times(() => rows.matmul(weight))],
      ['redistribute, Shard(0) to Replicate', await times(() => rows.redistribute([Replicate()]))],
    ];
    if (rank === 0)
      for (const [name, value] of measured) print({ name, unit: 'us', value, burst: BURST });
  },
  { timeoutMs: 60_000 },
);
