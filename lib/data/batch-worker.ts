/**
 * The program of a worker thread: imports the dataset, loads the units of each task, and puts the
 * samples side by side, unless the program has a collateFn of its own.
 */
import { parentPort, workerData } from 'node:worker_threads';
import { plainError, type SentError, sentError } from '../distributed/launch/serialize-error.js';
import { collateArrays, type HostBatch } from './collate.js';
import { type Source, sourceOf, type Unit } from './dataset.js';
import { type DatasetModule, datasetOf } from './import-dataset.js';
import { detached } from './sent-samples.js';

/** What a worker gets when it starts. */
export interface WorkerSettings {
  readonly module: DatasetModule;
  /** Whether batches are collated here. */
  readonly collates: boolean;
}

/** Units to load. */
export interface WorkerTask {
  readonly task: number;
  readonly units: readonly Unit[];
}

/** The answer to a task. */
export type WorkerAnswer = { readonly task: number } & (
  | { readonly samples: unknown[] }
  | { readonly batch: HostBatch }
  /** The unit of the task that cannot be loaded; null if the batch as a whole fails. */
  | { readonly failed: number | null; readonly error: SentError }
);

const { module, collates } = workerData as WorkerSettings;
const source = datasetOf(module).then((dataset) => sourceOf('importDataset', dataset as never));
source.catch(() => {}); // each task reports it

type Outcome = { readonly value: unknown } | { readonly error: unknown };

async function load({ get }: Source<unknown>, unit: Unit): Promise<Outcome> {
  try {
    return { value: get === null ? unit : await get(unit) };
  } catch (error) {
    return { error };
  }
}

async function answer({ task, units }: WorkerTask): Promise<[WorkerAnswer, ArrayBuffer[]]> {
  try {
    const ready = await source;
    const outcomes = await Promise.all(units.map((unit) => load(ready, unit)));
    const failed = outcomes.findIndex((each) => 'error' in each);
    if (failed >= 0) {
      const { error } = outcomes[failed] as { error: unknown };
      return [{ task, failed, error: plainError(sentError(error)) }, []];
    }
    const samples = outcomes.map((each) => (each as { value: unknown }).value);
    const loaded = collates ? { batch: collateArrays(samples) } : { samples };
    const { value, buffers } = detached(loaded, collates);
    return [{ task, ...(value as typeof loaded) }, buffers];
  } catch (error) {
    return [{ task, failed: null, error: plainError(sentError(error)) }, []];
  }
}

parentPort?.on('message', async (given: WorkerTask) => {
  const [message, buffers] = await answer(given);
  try {
    parentPort?.postMessage(message, buffers);
  } catch (error) {
    // A sample holds what no thread can be sent, such as a function.
    parentPort?.postMessage({
      task: given.task,
      failed: null,
      error: plainError(sentError(error)),
    } satisfies WorkerAnswer);
  }
});
