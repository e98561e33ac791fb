/** Worker threads that load batches, in turns. */
import { Worker } from 'node:worker_threads';
import { DataError } from '../core/errors.js';
import { receivedError } from '../distributed/launch/serialize-error.js';
import { moduleFile } from '../native/load.js';
import type { WorkerAnswer, WorkerSettings, WorkerTask } from './batch-worker.js';
import { type Fetched, type Fetcher, sampleError } from './fetch.js';
import type { Step } from './order.js';

/** A thread, and what it was given and has not answered. */
class DataWorker {
  readonly index: number;
  private readonly thread: Worker;
  private readonly pending = new Map<
    number,
    { resolve(answer: WorkerAnswer): void; reject(error: Error): void }
  >();
  /** Why it takes no more tasks. */
  private ended: DataError | null = null;
  private tasks = 0;

  constructor(index: number, settings: WorkerSettings) {
    this.index = index;
    this.thread = new Worker(moduleFile('data/batch-worker'), {
      workerData: settings,
      name: `shardwise data ${index}`,
    });
    this.thread.unref(); // while nothing is asked of it, the program may end
    this.thread.on('message', (answer: WorkerAnswer) => this.settle(answer));
    this.thread.once('error', (error: Error) => this.fail(`failed: ${error.message}`, error));
    this.thread.once('exit', (code) => this.fail(`ended with code ${code}`));
  }

  request(units: Step['units']): Promise<WorkerAnswer> {
    if (this.ended !== null) return Promise.reject(this.ended);
    const task = this.tasks++;
    return new Promise((resolve, reject) => {
      this.pending.set(task, { resolve, reject });
      this.thread.ref();
      this.thread.postMessage({ task, units } satisfies WorkerTask);
    });
  }

  async end(): Promise<void> {
    this.fail('was ended');
    await this.thread.terminate();
  }

  private settle(answer: WorkerAnswer): void {
    const waiting = this.pending.get(answer.task);
    this.pending.delete(answer.task);
    if (this.pending.size === 0) this.thread.unref();
    waiting?.resolve(answer);
  }

  private fail(what: string, cause?: Error): void {
    this.ended ??= new DataError(
      `DataLoader: worker ${this.index} ${what}`,
      { worker: this.index },
      cause === undefined ? {} : { cause },
    );
    for (const { reject } of this.pending.values()) reject(this.ended);
    this.pending.clear();
  }
}

/** Loads steps in worker threads, each of which takes every so manyth step. */
export class WorkerPool<Sample> implements Fetcher<Sample> {
  private readonly workers: readonly DataWorker[];
  private steps = 0;

  constructor(count: number, settings: WorkerSettings) {
    this.workers = Array.from({ length: count }, (_, index) => new DataWorker(index, settings));
  }

  async fetch(step: Step): Promise<Fetched<Sample>> {
    const worker = this.workers[this.steps++ % this.workers.length] as DataWorker;
    const answer = await worker.request(step.units);
    if (!('error' in answer)) return answer as Fetched<Sample>;
    const error = receivedError(answer.error);
    throw answer.failed === null ? error : sampleError(step, answer.failed, error, worker.index);
  }

  async close(): Promise<void> {
    await Promise.all(this.workers.map((each) => each.end()));
  }
}
