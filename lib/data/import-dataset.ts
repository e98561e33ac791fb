/** Datasets that a module exports: worker threads can import them, too. */
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { isMainThread } from 'node:worker_threads';
import { DataError } from '../core/errors.js';
import { unexpected } from '../core/options.js';
import { type Dataset, type IterableDataset, sourceOf } from './dataset.js';

/** Where a dataset comes from. */
export interface DatasetModule {
  readonly url: string;
  readonly options: unknown;
}

const modules = new WeakMap<object, DatasetModule>();

/** The module of a dataset; undefined for one that {@link importDataset} did not give. */
export const moduleOf = (dataset: object): DatasetModule | undefined => modules.get(dataset);

/**
 * The dataset that a module exports as `default`, or that the function does which it exports: a
 * loader with `numWorkers` imports the module in each worker thread, because a thread cannot be
 * given functions.
 *
 * @param module - the address or the path of the module
 * @param options - passed to the function; for workers it is cloned, so it holds no functions
 * @throws ArgumentError for a path of another kind, or an export that is no dataset; DataError if
 * the module cannot be imported
 */
export async function importDataset<Sample = unknown>(
  module: URL | string,
  options?: unknown,
): Promise<Dataset<Sample>>;
export async function importDataset<Sample, Item>(
  module: URL | string,
  options?: unknown,
): Promise<IterableDataset<Sample, Item>>;
export async function importDataset(module: URL | string, options?: unknown): Promise<object> {
  const op = 'importDataset';
  if (!(module instanceof URL) && (typeof module !== 'string' || module === ''))
    throw unexpected(op, 'module', 'a path or a file URL', module);
  const isUrl = module instanceof URL || module.startsWith('file:');
  const url = isUrl ? String(module) : pathToFileURL(path.resolve(module)).href;
  const dataset = (await datasetOf({ url, options })) as object;
  sourceOf(op, dataset as never);
  modules.set(dataset, { url, options });
  return dataset;
}

const TYPESCRIPT =
  '. tsx compiles no modules of worker threads on Node 20: give a module in JavaScript, or use a ' +
  'newer Node';

/** What the module exports. @throws DataError if it cannot be imported */
export async function datasetOf({ url, options }: DatasetModule): Promise<unknown> {
  try {
    const { default: exported } = (await import(url)) as { default?: unknown };
    return typeof exported === 'function' ? await exported(options) : exported;
  } catch (error) {
    const { message, code } = error as NodeJS.ErrnoException;
    const isUncompiled = code === 'ERR_UNKNOWN_FILE_EXTENSION' && !isMainThread;
    throw new DataError(
      `importDataset: ${url} cannot be imported: ${message}${isUncompiled ? TYPESCRIPT : ''}`,
      { module: url },
      { cause: error },
    );
  }
}
