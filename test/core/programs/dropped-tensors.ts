/**
 * Computes 200 results of 1 MiB, reads and drops each, and collects garbage. Prints how many MiB
 * the process keeps.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { memory, ones } from '../../../lib/index.js';

const a = ones([262144]);
await a.add(1).read();
memory.collect();
await sleep(50);
const before = process.memoryUsage().rss;
for (let i = 0; i < 200; i++) {
  await a.add(1).read();
  if (i % 20 === 0) await sleep(1);
}
memory.collect();
await sleep(50);
memory.collect();
await sleep(50);
console.log(JSON.stringify({ keptMiB: (process.memoryUsage().rss - before) / 2 ** 20 }));
