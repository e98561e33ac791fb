/** Threads that ask for V8's collector at one moment: prints how many got none. */
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { collectGarbage } from '../../lib/eager/gc-policy.js';

const THREADS = 8;
const ROUNDS = 4;

async function round(): Promise<number> {
  const gate = new Int32Array(new SharedArrayBuffer(4));
  const workers = Array.from(
    { length: THREADS },
    () => new Worker(fileURLToPath(import.meta.url), { workerData: gate }),
  );
  await Promise.all(workers.map((worker) => once(worker, 'message')));
  const answers = workers.map((worker) => once(worker, 'message'));
  Atomics.store(gate, 0, 1);
  Atomics.notify(gate, 0);
  return (await Promise.all(answers)).filter(([error]) => error !== null).length;
}

if (isMainThread) {
  let failed = 0;
  for (let i = 0; i < ROUNDS; i++) failed += await round();
  console.log(JSON.stringify({ failed }));
} else {
  parentPort?.postMessage('ready');
  Atomics.wait(workerData as Int32Array, 0, 0);
  try {
    collectGarbage();
    parentPort?.postMessage(null);
  } catch (error) {
    parentPort?.postMessage(String(error));
  }
}
