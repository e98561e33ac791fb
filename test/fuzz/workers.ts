/**
 * Fuzzes worker threads: workers load the addon and end in every possible manner while the main
 * thread works.
 */
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { collectGarbage } from '../../lib/eager/gc-policy.js';
import { ones } from '../../lib/index.js';
import { addon } from '../../lib/runtime.js';
import { Finding, type Rng } from './rng.js';

const body = new URL('./worker-body.mjs', import.meta.url);
const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..', '..');
const ends = ['return', 'exit', 'throw', 'loop'] as const;

/** Runs one worker to its end; one that loops is terminated. */
function runWorker(rng: Rng): Promise<void> {
  const end = rng.pick(ends);
  const workerData = {
    root,
    end,
    steps: rng.int(0, 60),
    bytes: rng.pick([64, 4096, 1 << 20]),
    kernel: addon.kernelNames.indexOf('add'),
  };
  const worker = new Worker(body, { workerData, execArgv: [], stderr: true });
  const stopAfter = end === 'loop' ? rng.int(1, 30) : rng.chance(0.2) ? rng.int(0, 30) : -1;
  return new Promise((resolve, reject) => {
    worker.on('online', () => {
      if (stopAfter >= 0) setTimeout(() => void worker.terminate(), stopAfter);
    });
    worker.on('error', (error) => {
      // A worker that loops may run out of memory, which is an error like others.
      const code = String((error as NodeJS.ErrnoException).code);
      if (error.message !== 'an end on purpose' && !code.startsWith('SW_'))
        reject(new Finding(`a worker failed: ${error.stack}`));
    });
    worker.on('exit', () => resolve());
  });
}

/** Live blocks of the process after the first case; later cases may not leave more. */
let baseline: number | null = null;

/** Runs one case. @throws Finding */
export async function fuzzWorkers(rng: Rng, trace: (line: string) => void): Promise<void> {
  const count = rng.int(1, 3);
  trace(`${count} workers`);
  const running = Promise.all(rng.list(count, () => runWorker(rng)));
  const mine = ones([500, 50]);
  for (let i = 0; i < 20; i++) {
    const next = mine.add(1).mul(2);
    await next.read();
    next.dispose();
  }
  mine.dispose();
  await running;
  collectGarbage();
  const after = addon.memoryStats(0).liveBlocks;
  const before = (baseline ??= after);
  if (after > before) throw new Finding(`${after - before} blocks of workers were not given back`);
}
