/** Orders of the indices of a dataset. */
import { checkFlag, checkNumber, optionsOf, unexpected } from '../core/options.js';
import { Permutation } from './permutation.js';

/**
 * The order of the samples of an epoch, the same on all ranks: indices, or batches of them. Any
 * iterable with a length will do; a loader sets the epoch before it iterates.
 * @see PyTorch `torch.utils.data.Sampler`
 */
export interface Sampler<Item = number> extends Iterable<Item> {
  /** How many items an epoch has. */
  readonly length: number;
  /** Makes the order that of another epoch. */
  setEpoch?(epoch: number): void;
  /** The order from a position on; without it, the items before are skipped. */
  from?(position: number): Iterable<Item>;
}

/** What has a length: a dataset or an array. */
export interface Sized {
  /** The number of samples. */
  readonly length: number;
}

function checkSized(op: string, dataset: Sized): number {
  const length = (dataset as Sized | null)?.length;
  if (!Number.isSafeInteger(length) || (length as number) < 0)
    throw unexpected(op, 'dataset', 'a dataset or an array, which has a length', dataset);
  return length as number;
}

/**
 * The indices in their order. @throws ArgumentError for a dataset without a length
 * @see PyTorch `torch.utils.data.SequentialSampler`
 * @example
 * [...new SequentialSampler(['a', 'b', 'c'])]; // [0, 1, 2]
 */
export class SequentialSampler implements Sampler {
  /** The number of samples. */
  readonly length: number;

  constructor(dataset: Sized) {
    this.length = checkSized('SequentialSampler', dataset);
  }

  /** The indices from a position on. */
  *from(position: number): Generator<number, void> {
    for (let index = position; index < this.length; index++) yield index;
  }

  [Symbol.iterator](): Generator<number, void> {
    return this.from(0);
  }
}

/** Options of {@link RandomSampler}. */
export interface RandomSamplerOptions {
  /** A whole number from 0; each seed has orders of its own. 0 by default. */
  seed?: number;
}

/**
 * The indices in an order that depends on the seed, the epoch and the length alone. It is computed
 * as it is needed, so that a position far inside costs nothing.
 *
 * @throws ArgumentError for a dataset without a length, or a bad seed
 * @see PyTorch `torch.utils.data.RandomSampler`
 * @example
 * [...new RandomSampler({ length: 5 }, { seed: 1 })].sort(); // [0, 1, 2, 3, 4]
 */
export class RandomSampler implements Sampler {
  /** The number of samples. */
  readonly length: number;
  /** What the orders depend on. */
  readonly seed: number;
  private epoch = 0;

  constructor(dataset: Sized, options: RandomSamplerOptions = {}) {
    const op = 'RandomSampler';
    const { seed = 0 } = optionsOf(op, options, 'seed');
    checkNumber(op, 'seed', seed, { from: 0, whole: true });
    this.length = checkSized(op, dataset);
    this.seed = seed;
  }

  /** Makes the order that of another epoch. @throws ArgumentError */
  setEpoch(epoch: number): void {
    checkNumber('RandomSampler.setEpoch', 'epoch', epoch, { from: 0, whole: true });
    this.epoch = epoch;
  }

  /** The indices from a position on. */
  *from(position: number): Generator<number, void> {
    const order = new Permutation(this.length, this.seed, this.epoch);
    for (let at = position; at < this.length; at++) yield order.at(at);
  }

  [Symbol.iterator](): Generator<number, void> {
    return this.from(0);
  }
}

/** Options of {@link DistributedSampler}. */
export interface DistributedSamplerOptions extends RandomSamplerOptions {
  /** The number of ranks that share the samples. */
  numReplicas: number;
  /** The index of this rank among them. */
  rank: number;
  /** Whether the order is random. True by default. */
  shuffle?: boolean;
}

/**
 * What a rank gets of an order that all ranks share: every `numReplicas`-th index. As a loader's
 * `sampler` it is the same as the loader's options `numReplicas` and `rank`.
 *
 * Iterated over by itself, all ranks get equally many: indices from the beginning fill up the end.
 *
 * @throws ArgumentError for a rank that is none of the replicas, and as {@link RandomSampler}
 * @see PyTorch `torch.utils.data.DistributedSampler`
 * @example
 * [...new DistributedSampler({ length: 5 }, { numReplicas: 2, rank: 1, shuffle: false })]; // [1, 3, 0]
 */
export class DistributedSampler implements Sampler {
  /** The order that all ranks share. */
  readonly order: SequentialSampler | RandomSampler;
  /** The number of ranks that share the samples. */
  readonly numReplicas: number;
  /** The index of this rank among them. */
  readonly rank: number;

  constructor(dataset: Sized, options: DistributedSamplerOptions) {
    const op = 'DistributedSampler';
    const given = optionsOf(op, options, 'numReplicas rank shuffle seed');
    const { numReplicas, rank, shuffle = true, seed } = given;
    checkReplicas(op, numReplicas, rank);
    checkFlag(op, 'shuffle', shuffle);
    this.order = shuffle
      ? new RandomSampler(dataset, seed === undefined ? {} : { seed })
      : new SequentialSampler(dataset);
    this.numReplicas = numReplicas;
    this.rank = rank;
  }

  /** The number of samples of this rank. */
  get length(): number {
    return Math.ceil(this.order.length / this.numReplicas);
  }

  /** Makes the order that of another epoch. @throws ArgumentError */
  setEpoch(epoch: number): void {
    if (this.order instanceof RandomSampler) this.order.setEpoch(epoch);
  }

  *[Symbol.iterator](): Generator<number, void> {
    const all = [...this.order];
    for (let i = 0; i < this.length; i++)
      yield all[(i * this.numReplicas + this.rank) % all.length] as number;
  }
}

/** @throws ArgumentError unless the rank is one of the replicas */
export function checkReplicas(op: string, numReplicas: number, rank: number): void {
  checkNumber(op, 'numReplicas', numReplicas, { from: 1, whole: true });
  checkNumber(op, 'rank', rank, { from: 0, to: numReplicas - 1, whole: true });
}

/**
 * Batches of what another sampler gives; as a loader's `batchSampler`, or as the pattern of one
 * that makes batches of samples of similar length.
 *
 * @throws ArgumentError for a bad batch size
 * @see PyTorch `torch.utils.data.BatchSampler`
 * @example
 * [...new BatchSampler(new SequentialSampler({ length: 5 }), 2)]; // [[0, 1], [2, 3], [4]]
 */
export class BatchSampler implements Sampler<readonly number[]> {
  /** What the batches are of. */
  readonly sampler: Sampler;
  /** The samples of a batch. */
  readonly batchSize: number;
  /** Whether a last batch that is not full is left out. */
  readonly dropLast: boolean;

  constructor(sampler: Sampler, batchSize: number, dropLast = false) {
    checkNumber('BatchSampler', 'batchSize', batchSize, { from: 1, whole: true });
    checkFlag('BatchSampler', 'dropLast', dropLast);
    checkSized('BatchSampler', sampler);
    this.sampler = sampler;
    this.batchSize = batchSize;
    this.dropLast = dropLast;
  }

  /** The number of batches. */
  get length(): number {
    const batches = this.sampler.length / this.batchSize;
    return this.dropLast ? Math.floor(batches) : Math.ceil(batches);
  }

  /** Makes the order that of another epoch. */
  setEpoch(epoch: number): void {
    this.sampler.setEpoch?.(epoch);
  }

  *[Symbol.iterator](): Generator<readonly number[], void> {
    let batch: number[] = [];
    for (const index of this.sampler) {
      batch.push(index);
      if (batch.length < this.batchSize) continue;
      yield batch;
      batch = [];
    }
    if (batch.length > 0 && !this.dropLast) yield batch;
  }
}
