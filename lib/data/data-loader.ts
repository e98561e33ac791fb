/** `DataLoader`: batches of a dataset, in an order that any number of ranks shares. */
import { CheckpointError, DataError } from '../core/errors.js';
import { checkNumber, optionsOf, shown } from '../core/options.js';
import type { Stateful } from '../index.js';
import { type Made, withTensors } from './batches.js';
import type { Collated } from './collate.js';
import { type DatasetLike, type Source, sourceOf, type Unit } from './dataset.js';
import { type Fetcher, fetchedAhead, fetcherOfThread } from './fetch.js';
import { moduleOf } from './import-dataset.js';
import { type CheckedOptions, checkOptions, type DataLoaderOptions, OP } from './loader-options.js';
import { type Place, type Step, shuffledStream, skipping, stepsFrom } from './order.js';
import { RandomSampler, type Sampler, SequentialSampler } from './sampler.js';
import { WorkerPool } from './worker-pool.js';

/** What a {@link DataLoader} saves: a place in the order that all ranks share. */
export interface DataLoaderState {
  /** What the orders depend on. */
  seed: number;
  /** The epoch of the next batch. */
  epoch: number;
  /** Samples, or batches of a `batchSampler`, of that epoch that all ranks together have got. */
  position: number;
  /** The number of samples of the dataset; null for a stream. */
  length: number | null;
  /** What the order is made by: a place in another order is another place. */
  order: string;
}

/**
 * Batches of an array, a dataset or a stream. Each iteration is an epoch.
 *
 * The order of the samples depends on the seed, the epoch and their number alone, and each step
 * takes the next `numReplicas * batchSize` of them, every `numReplicas`-th for this rank. So
 * `stateDict` is a place in that order, from which any number of ranks goes on. The last batches
 * of an epoch may be smaller; if there are fewer samples than ranks, the next epoch fills up and
 * begins behind.
 *
 * @throws ArgumentError for what is no dataset, and for options that do not fit; DataError in an
 * iteration for a sample that cannot be loaded, with its index and its worker
 * @see PyTorch `torch.utils.data.DataLoader`, torchdata `StatefulDataLoader`
 * @example
 * const loader = new DataLoader([1, 2, 3, 4, 5], { batchSize: 2, shuffle: true, seed: 1 });
 * for await (const batch of loader) batch.sum();
 * loader.stateDict().epoch; // 1
 */
export class DataLoader<Sample = unknown, Batch = Collated<Sample>>
  implements AsyncIterable<Batch>, Stateful
{
  /** What the batches are of. */
  readonly dataset: DatasetLike<Sample>;
  private readonly source: Source<Sample>;
  private readonly options: CheckedOptions<Sample, Batch>;
  private seed: number;
  /** Where the batches so far end. */
  private reached: Place = { epoch: 0, position: 0 };
  /** Where the next iteration begins. */
  private next: Place = { epoch: 0, position: 0 };

  constructor(dataset: DatasetLike<Sample>, options: DataLoaderOptions<Sample, Batch> = {}) {
    this.dataset = dataset;
    this.source = sourceOf(OP, dataset);
    this.options = checkOptions(dataset, this.source, options);
    this.seed = this.options.seed;
  }

  /** The epoch of the next batch. */
  get epoch(): number {
    return this.reached.epoch;
  }

  /** Batches of an epoch on each rank; null for a stream. */
  get length(): number | null {
    const { batchSampler, sampler, size, dropLast } = this.options;
    const units = batchSampler?.length ?? sampler?.length ?? this.source.length;
    if (units === null) return null;
    return dropLast ? Math.floor(units / size) : Math.ceil(units / size);
  }

  /** The batches of the next epoch; after `loadStateDict`, those of the rest of its epoch. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Batch, void> {
    const start = this.next;
    // An iteration that ends early is not gone on with by the next one.
    this.next = { epoch: start.epoch + 1, position: 0 };
    this.reached = start;
    for await (const { batch, after } of this.batches(start)) {
      this.reached = after;
      if (after.epoch > start.epoch) this.next = after;
      yield batch;
    }
  }

  /** The batches of this and all later epochs, without an end. @throws DataError if there are none */
  async *repeat(): AsyncGenerator<Batch, never> {
    for (;;) {
      let isEmpty = true;
      for await (const batch of this) {
        isEmpty = false;
        yield batch;
      }
      if (isEmpty)
        throw new DataError(
          `${OP}.repeat: epoch ${this.next.epoch - 1} has no batch; give samples, or no dropLast`,
          { epoch: this.next.epoch - 1 },
        );
    }
  }

  /** The place behind the last batch, for checkpoints: the same on all ranks. */
  stateDict(): DataLoaderState {
    const { length } = this.source;
    return { seed: this.seed, ...this.reached, length, order: this.order };
  }

  private get order(): string {
    const { batchSampler, sampler, shuffle, bufferSize } = this.options;
    if (batchSampler !== null) return 'batchSampler';
    if (sampler !== null) return 'sampler';
    if (!shuffle) return 'as they come';
    return this.source.length === null ? `shuffled among ${bufferSize}` : 'shuffled';
  }

  /**
   * Makes the next iteration begin at a place, on any number of ranks and with any batch size.
   *
   * @throws CheckpointError for the state of a dataset of another length, and of a loader with
   * another order; ArgumentError for what is no state
   */
  loadStateDict(state: DataLoaderState): void {
    const op = `${OP}.loadStateDict`;
    const names = 'seed epoch position length order';
    const { seed, epoch, position, length, order } = optionsOf(op, state, names);
    for (const [name, value] of Object.entries({ seed, epoch, position }))
      checkNumber(op, name, value, { from: 0, whole: true });
    if (length !== this.source.length)
      throw new CheckpointError(
        `${op}: expected the state of a dataset of ${shown(this.source.length)} samples, got that ` +
          `of one of ${shown(length)}, whose places are others; begin without this state`,
        { expected: this.source.length, length },
      );
    if (order !== this.order)
      throw new CheckpointError(
        `${op}: expected the state of a loader whose order is ${this.order}, got that of one whose ` +
          `order is ${order}; give the shuffle, bufferSize and sampler of then`,
        { expected: this.order, order },
      );
    this.seed = seed;
    this.reached = { epoch, position };
    this.next = this.reached;
  }

  private batches(start: Place): AsyncGenerator<Made<Batch>, void> {
    const { ahead } = this.options;
    return withTensors(
      fetchedAhead(this.steps(start), () => this.fetcher(), ahead),
      this.options,
    );
  }

  private async *steps(start: Place): AsyncGenerator<Step, void> {
    const open = (place: Place) => this.open(place);
    for await (const step of stepsFrom({ ...this.options, open }, start))
      yield this.options.batchSampler === null ? step : ofBatch(step);
  }

  /** The units of an epoch from a place on. */
  private open({ epoch, position }: Place): Iterable<Unit> | AsyncIterable<Unit> {
    const { batchSampler, shuffle, bufferSize } = this.options;
    const { stream } = this.source;
    if (stream !== null) {
      const all = shuffle ? shuffledStream(stream(), bufferSize, this.seed, epoch) : stream();
      return position === 0 ? all : skipping(all, position);
    }
    const sampler: Sampler<unknown> = batchSampler ?? this.sampler();
    sampler.setEpoch?.(epoch);
    if (position === 0) return sampler;
    return sampler.from?.(position) ?? skipping(sampler, position);
  }

  private sampler(): Sampler {
    const { sampler, shuffle } = this.options;
    if (sampler !== null) return sampler;
    const sized = { length: this.source.length as number };
    return shuffle ? new RandomSampler(sized, { seed: this.seed }) : new SequentialSampler(sized);
  }

  private fetcher(): Fetcher<Sample> {
    const { numWorkers, collateFn } = this.options;
    const module = moduleOf(this.dataset);
    if (numWorkers === 0 || module === undefined) return fetcherOfThread(this.source);
    return new WorkerPool(numWorkers, { module, collates: collateFn === null });
  }
}

/** A step of a `batchSampler`, whose unit is a batch of indices. */
function ofBatch({ units, places, after }: Step): Step {
  const [indices] = units as [readonly number[]];
  return { units: indices, places: indices.map(() => places[0] as Place), after };
}
