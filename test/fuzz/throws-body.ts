/**
 * Calls that fail and are caught, in contexts where native code calls JavaScript: `throws-body
 * <context> <calls>` prints their number. There an error of native code once ended the process if
 * V8 collected garbage at the same time, so every turn leaves garbage with tensors.
 */
import { fileURLToPath } from 'node:url';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { arange, int64, nn, ones, type Tensor, tensor } from '../../lib/index.js';
import { addon } from '../../lib/runtime.js';
import type { Context } from './throws-contexts.js';

const CALLS_A_TURN = 50;
const YOUNG_MB = 4;

const weight = ones([10, 4]);
const badRow = tensor([11], { dtype: int64 });
/** Enough rows that the kernel runs on the stream's thread, so that the read fails. */
const badRows = arange(20_000, { dtype: int64 });
const document = JSON.stringify(
  Array.from({ length: 2000 }, (_, id) => ({ id, name: `item ${id}` })),
);
const kept: unknown[] = [];
let failed = 0;

const calls: readonly (() => unknown)[] = [
  () => nn.functional.embedding(badRow, weight).tolist(),
  () => weight.indexSelect(0, badRow).item(),
  () => addon.synchronize(1e6),
  () => addon.submit(1),
  () => addon.readScalar(1, 0, 0, 0),
  () => addon.allocate(0, -1, true),
  () => addon.eventQuery(1e6),
];

function fail(call: () => unknown): void {
  try {
    call();
  } catch (error) {
    if (!/^(SW_|ERR_)/.test(String((error as { code?: unknown }).code))) throw error;
    failed++;
    return;
  }
  throw new Error('a call that had to fail did not');
}

/** Synchronous, because code after an `await` never showed the bug. */
function turn(): void {
  kept[failed & 1] = JSON.parse(document);
  for (let i = 0; i < CALLS_A_TURN; i++) {
    weight.add(i).mul(2);
    fail(calls[i % calls.length] as () => unknown);
  }
}

/** A read that completes with an error. */
function failingRead(): Promise<void> {
  const rows: Tensor = nn.functional.embedding(badRows, weight);
  return rows.read().then(
    () => Promise.reject(new Error('a read that had to fail did not')),
    () => void failed++,
  );
}

/** Turns of the event loop, each with a pending read that fails, until enough calls have failed. */
function inTurns(schedule: (next: () => void) => unknown, most: number, done: () => void): void {
  const next = (): void => {
    if (failed >= most) {
      done();
      return;
    }
    turn();
    void failingRead().then(() => schedule(next));
  };
  schedule(next);
}

function inWorker(most: number, done: () => void): void {
  const worker = new Worker(fileURLToPath(import.meta.url), {
    workerData: 'throws',
    resourceLimits: { maxYoungGenerationSizeMb: YOUNG_MB },
  });
  worker.on('message', (count: number) => {
    failed = count;
    if (failed < most) worker.postMessage('go');
    else void worker.terminate().then(done);
  });
}

function main(context: Context, most: number): void {
  const report = (): void => console.log(JSON.stringify({ failed }));
  if (context === 'timers') inTurns((next) => setTimeout(next, 0), most, report);
  else if (context === 'immediates') inTurns(setImmediate, most, report);
  else if (context === 'worker') inWorker(most, report);
  else {
    while (failed < most) turn();
    report();
  }
}

if (!isMainThread && workerData === 'throws') {
  parentPort?.on('message', () => {
    turn();
    parentPort?.postMessage(failed);
  });
  parentPort?.postMessage(0);
} else main(process.argv[2] as Context, Number(process.argv[3]));
