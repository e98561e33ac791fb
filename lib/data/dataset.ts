/** What a loader reads: datasets with a length, and streams. */
import { checkFunction, unexpected } from '../core/options.js';
import { isTensor } from './collate.js';

/**
 * Samples by index, each loaded when it is needed. @see PyTorch `torch.utils.data.Dataset`
 * @example
 * const squares = { length: 100, get: (index: number) => index ** 2 };
 * new DataLoader(squares, { batchSize: 8 }).length; // 13
 */
export interface Dataset<Sample = unknown> {
  /** The number of samples. */
  readonly length: number;
  /** The sample of an index from 0. */
  get(index: number): Sample | Promise<Sample>;
}

/**
 * A stream that begins anew at each iteration, such as the lines of a file. With `get`, only the
 * items of this rank become samples, and worker threads can share that work.
 * @see PyTorch `torch.utils.data.IterableDataset`
 */
export type IterableDataset<Sample = unknown, Item = Sample> = (
  | Iterable<Item>
  | AsyncIterable<Item>
) & {
  /** The sample of an item; without it, items are samples. */
  get?(item: Item): Sample | Promise<Sample>;
};

/** What a loader takes: an array, a dataset, a stream, or a function that begins a stream. */
export type DatasetLike<Sample> =
  | ArrayLike<Sample>
  | Dataset<Sample>
  // biome-ignore lint/suspicious/noExplicitAny: items of a stream are no part of a loader's types
  | IterableDataset<Sample, any>
  | (() => Iterable<Sample> | AsyncIterable<Sample>);

/** An index of a dataset, or an item of a stream. */
export type Unit = unknown;

/** A dataset in the form that loaders work with. */
export interface Source<Sample> {
  /** Null for a stream. */
  readonly length: number | null;
  /** Begins the stream; null for a dataset with a length. */
  readonly stream: (() => Iterable<Unit> | AsyncIterable<Unit>) | null;
  /** Null where items are samples. */
  readonly get: ((unit: Unit) => Sample | Promise<Sample>) | null;
}

const EXPECTED =
  'an array, a dataset with length and get(index), an iterable, or a function that returns one';

/** @throws ArgumentError for what is no dataset, and for an iterator, which ends after one epoch */
export function sourceOf<Sample>(op: string, dataset: DatasetLike<Sample>): Source<Sample> {
  if (typeof dataset === 'function')
    return { length: null, stream: dataset as () => Iterable<Unit>, get: null };
  if (typeof dataset !== 'object' || dataset === null)
    throw unexpected(op, 'dataset', EXPECTED, dataset);
  if (isTensor(dataset))
    throw unexpected(op, 'dataset', `${EXPECTED}, such as new TensorDataset(t)`, dataset);
  const { length, get } = dataset as Partial<Dataset<Sample>>;
  const ofUnit = get === undefined ? null : (unit: Unit) => get.call(dataset, unit as number);
  if (ofUnit !== null) checkFunction(op, 'dataset.get', get);
  if (Number.isSafeInteger(length) && (length as number) >= 0) {
    const ofArray = (unit: Unit) => (dataset as ArrayLike<Sample>)[unit as number] as Sample;
    return { length: length as number, stream: null, get: ofUnit ?? ofArray };
  }
  if (!isIterable(dataset)) throw unexpected(op, 'dataset', EXPECTED, dataset);
  if (isIterator(dataset))
    throw unexpected(op, 'dataset', `${EXPECTED}, because each epoch begins it anew`, dataset);
  return { length: null, stream: () => dataset, get: ofUnit };
}

const isIterable = (value: object): value is Iterable<Unit> | AsyncIterable<Unit> =>
  Symbol.iterator in value || Symbol.asyncIterator in value;

/** Whether it can be iterated over once only, as what a generator function returns. */
const isIterator = (value: object): boolean =>
  typeof (value as Partial<Iterator<unknown>>).next === 'function';

/**
 * A dataset of `fn` of each sample, computed when the sample is needed, by workers too. A stream
 * stays a stream.
 *
 * @throws ArgumentError for what is no dataset
 * @example
 * const halves = mapDataset([2, 4, 6], (n) => n / 2);
 * halves.get(2); // 3
 */
export function mapDataset<Sample, Mapped>(
  dataset: ArrayLike<Sample> | Dataset<Sample>,
  fn: (sample: Sample) => Mapped | Promise<Mapped>,
): Dataset<Mapped>;
export function mapDataset<Sample, Mapped>(
  dataset: DatasetLike<Sample>,
  fn: (sample: Sample) => Mapped | Promise<Mapped>,
): IterableDataset<Mapped, unknown>;
export function mapDataset<Sample, Mapped>(
  dataset: DatasetLike<Sample>,
  fn: (sample: Sample) => Mapped | Promise<Mapped>,
): Dataset<Mapped> | IterableDataset<Mapped, unknown> {
  const { length, stream, get } = sourceOf('mapDataset', dataset);
  checkFunction('mapDataset', 'fn', fn);
  const mapped = (unit: Unit): Mapped | Promise<Mapped> => {
    const sample = get === null ? (unit as Sample) : get(unit);
    return sample instanceof Promise ? sample.then(fn) : fn(sample);
  };
  if (stream === null) return { length: length as number, get: mapped };
  return {
    get: mapped,
    async *[Symbol.asyncIterator]() {
      yield* stream();
    },
  };
}
