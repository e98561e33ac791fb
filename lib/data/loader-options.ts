/** The options of `DataLoader`, and their checks. */
import { ArgumentError } from '../core/errors.js';
import { checkFlag, checkFunction, checkNumber, optionsOf, unexpected } from '../core/options.js';
import { type Device, type DeviceName, device as deviceOf } from '../index.js';
import type { Collated } from './collate.js';
import type { DatasetLike, Source } from './dataset.js';
import { moduleOf } from './import-dataset.js';
import { checkReplicas, DistributedSampler, type Sampler } from './sampler.js';

/** Options of {@link DataLoader}. */
export interface DataLoaderOptions<Sample = unknown, Batch = Collated<Sample>> {
  /** Samples of a batch, on each rank. 1 by default. */
  batchSize?: number;
  /** Whether each epoch has an order of its own. False by default. */
  shuffle?: boolean;
  /** What the orders depend on, the same on all ranks. 0 by default. */
  seed?: number;
  /** Of a stream that is shuffled: how many of its items an item waits among. 1024 by default. */
  bufferSize?: number;
  /** The order of an epoch, the same on all ranks, in place of `shuffle`. */
  sampler?: Sampler;
  /** Batches of indices, the same on all ranks, in place of `batchSize`, `sampler` and `shuffle`. */
  batchSampler?: Sampler<readonly number[]>;
  /** Whether the end of an epoch that fills no batch on each rank is left out. False by default. */
  dropLast?: boolean;
  /** The number of ranks that share the samples. 1 by default: each rank has all. */
  numReplicas?: number;
  /** The index of this rank among them. 0 by default. */
  rank?: number;
  /** Makes a batch of samples; {@link defaultCollate} by default. */
  collateFn?: (samples: Sample[]) => Batch | Promise<Batch>;
  /** Worker threads that load the samples, of a dataset by `importDataset`. 0 by default. */
  numWorkers?: number;
  /** Batches that are loaded ahead, for each worker. 2 by default; without workers 0. */
  prefetchFactor?: number;
  /** Where the tensors of a batch are. A GPU gets the next batch while this one is used. */
  device?: DeviceName | Device;
  /** Whether the tensors of a batch are in pinned memory. False by default. */
  pinMemory?: boolean;
}

/** The options with their defaults. */
export interface CheckedOptions<Sample, Batch> {
  readonly shuffle: boolean;
  readonly seed: number;
  readonly bufferSize: number;
  readonly sampler: Sampler | null;
  readonly batchSampler: Sampler<readonly number[]> | null;
  readonly dropLast: boolean;
  readonly numReplicas: number;
  readonly rank: number;
  readonly collateFn: ((samples: Sample[]) => Batch | Promise<Batch>) | null;
  readonly numWorkers: number;
  readonly device: Device | null;
  readonly pinMemory: boolean;
  /** Units of a step, of all ranks. */
  readonly size: number;
  /** Batches that are loaded ahead. */
  readonly ahead: number;
}

export const OP = 'DataLoader';
const NAMES =
  'batchSize shuffle seed bufferSize sampler batchSampler dropLast numReplicas rank collateFn ' +
  'numWorkers prefetchFactor device pinMemory';

/** @throws ArgumentError for options of wrong kinds, and for some that exclude each other */
export function checkOptions<Sample, Batch>(
  dataset: DatasetLike<Sample>,
  source: Source<Sample>,
  given: DataLoaderOptions<Sample, Batch>,
): CheckedOptions<Sample, Batch> {
  const options = optionsOf(OP, given, NAMES);
  const { batchSize = 1, shuffle = false, seed = 0, bufferSize = 1024 } = options;
  const { dropLast = false, numWorkers = 0, pinMemory = false, collateFn = null } = options;
  const { prefetchFactor = numWorkers > 0 ? 2 : 0 } = options;
  for (const [name, value] of Object.entries({ batchSize, bufferSize }))
    checkNumber(OP, name, value, { from: 1, whole: true });
  for (const [name, value] of Object.entries({ seed, numWorkers, prefetchFactor }))
    checkNumber(OP, name, value, { from: 0, whole: true });
  for (const [name, value] of Object.entries({ shuffle, dropLast, pinMemory }))
    checkFlag(OP, name, value);
  if (collateFn !== null) checkFunction(OP, 'collateFn', collateFn);
  checkWorkers(dataset, source, numWorkers);
  const orders = ordersOf(options, source);
  return {
    ...orders,
    shuffle,
    seed,
    bufferSize,
    dropLast,
    collateFn,
    numWorkers,
    pinMemory,
    device: options.device === undefined ? null : deviceOf(options.device),
    size: orders.numReplicas * (orders.batchSampler === null ? batchSize : 1),
    ahead: prefetchFactor * Math.max(1, numWorkers),
  };
}

type Orders = Pick<
  CheckedOptions<unknown, unknown>,
  'sampler' | 'batchSampler' | 'numReplicas' | 'rank'
>;

/** Who gives the order of an epoch, and which ranks share it. */
function ordersOf<Sample, Batch>(
  options: DataLoaderOptions<Sample, Batch>,
  { stream }: Source<Sample>,
): Orders {
  const { sampler = null, batchSampler = null } = options;
  for (const [name, each] of Object.entries({ sampler, batchSampler })) {
    if (each === null) continue;
    if (!isSampler(each)) throw unexpected(OP, name, 'an iterable with a length', each);
    if (stream !== null) throw exclusive(name, 'a stream, which has an order of its own');
  }
  if (sampler !== null && options.shuffle !== undefined) throw exclusive('sampler', 'shuffle');
  if (batchSampler !== null)
    for (const name of ['batchSize', 'shuffle', 'sampler', 'dropLast'] as const)
      if (options[name] !== undefined) throw exclusive('batchSampler', name);
  const shared = sampler instanceof DistributedSampler ? sampler : null;
  if (shared !== null && (options.numReplicas ?? options.rank) !== undefined)
    throw exclusive('a DistributedSampler', 'numReplicas and rank');
  const { numReplicas = 1, rank = 0 } = shared ?? options;
  if (shared === null && numReplicas > 1 && options.rank === undefined)
    throw unexpected(OP, 'rank', 'given with numReplicas', undefined);
  checkReplicas(OP, numReplicas, rank);
  return { sampler: shared?.order ?? sampler, batchSampler, numReplicas, rank };
}

const isSampler = (value: unknown): boolean =>
  typeof value === 'object' &&
  value !== null &&
  Symbol.iterator in value &&
  Number.isSafeInteger((value as { length?: unknown }).length);

const exclusive = (one: string, other: string): ArgumentError =>
  new ArgumentError(`${OP}: ${one} and ${other} exclude each other; give one of them`, {
    op: OP,
    argument: one,
  });

/** @throws ArgumentError if worker threads are asked for and have nothing to do */
function checkWorkers<Sample>(
  dataset: DatasetLike<Sample>,
  { get }: Source<Sample>,
  numWorkers: number,
): void {
  if (numWorkers === 0) return;
  if (moduleOf(dataset as object) === undefined)
    throw new ArgumentError(
      `${OP}: expected a dataset of importDataset for numWorkers: ${numWorkers}, because a worker ` +
        'thread imports the dataset from its module; export it from one, and give what await ' +
        'importDataset(path) returns',
      { op: OP, argument: 'numWorkers' },
    );
  if (get === null)
    throw new ArgumentError(
      `${OP}: expected a stream with get(item) for numWorkers: ${numWorkers}: this thread reads the ` +
        'items, and worker threads make samples of them; use mapDataset',
      { op: OP, argument: 'numWorkers' },
    );
}
