/** Datasets of tensors, and parts of datasets. */
import { ArgumentError, ShapeError } from '../core/errors.js';
import { checkIntegers, checkNumber, listOf, optionsOf, unexpected } from '../core/options.js';
import { formatShape } from '../core/shape.js';
import { Tensor } from '../index.js';
import { type Dataset, type DatasetLike, sourceOf } from './dataset.js';
import { RandomSampler, type RandomSamplerOptions } from './sampler.js';

/**
 * The rows of tensors that have equally many: a sample is a list of a row of each.
 *
 * @throws ArgumentError for what are no tensors; ShapeError for tensors of different lengths
 * @see PyTorch `torch.utils.data.TensorDataset`
 * @example
 * new TensorDataset(ones([6, 2]), zeros([6])).get(0).length; // 2
 */
export class TensorDataset<Tensors extends readonly Tensor[] = Tensor[]>
  implements Dataset<{ [Index in keyof Tensors]: Tensor }>
{
  /** What the rows are of. */
  readonly tensors: Tensors;

  constructor(...tensors: Tensors) {
    const op = 'TensorDataset';
    const [first] = tensors;
    if (first === undefined || tensors.some((t) => !(t instanceof Tensor)))
      throw unexpected(op, 'tensors', 'one tensor or more', tensors);
    if (tensors.some((t) => t.ndim === 0 || t.shape[0] !== first.shape[0]))
      throw new ShapeError(
        `${op}: expected tensors with equally many rows, got the shapes ` +
          tensors.map(({ shape }) => formatShape(shape)).join(', '),
        { op, shapes: tensors.map(({ shape }) => shape) },
      );
    this.tensors = tensors;
  }

  /** The number of rows. */
  get length(): number {
    return (this.tensors[0] as Tensor).shape[0] as number;
  }

  /** A row of each tensor. */
  get(index: number): { [Index in keyof Tensors]: Tensor } {
    return this.tensors.map((t) => t.select(0, index)) as { [Index in keyof Tensors]: Tensor };
  }
}

/**
 * The samples of some indices of a dataset.
 *
 * @throws ArgumentError for a stream, and for what are no indices of the dataset
 * @see PyTorch `torch.utils.data.Subset`
 * @example
 * new Subset(['a', 'b', 'c'], [2, 0]).get(0); // 'c'
 */
export class Subset<Sample> implements Dataset<Sample> {
  /** Which samples it has. */
  readonly indices: readonly number[];
  private readonly sampleOf: (index: number) => Sample | Promise<Sample>;

  constructor(dataset: ArrayLike<Sample> | Dataset<Sample>, indices: readonly number[]) {
    const { length, get } = withLength('Subset', dataset);
    checkIntegers('Subset', 'indices', indices);
    for (const index of indices)
      checkNumber('Subset', 'an index', index, { from: 0, to: length - 1, whole: true });
    this.indices = indices;
    this.sampleOf = get;
  }

  /** The number of samples. */
  get length(): number {
    return this.indices.length;
  }

  /** The sample at a place of the subset. */
  get(index: number): Sample | Promise<Sample> {
    return this.sampleOf(this.indices[index] as number);
  }
}

/**
 * Divides a dataset at random: into parts of these lengths, or of these fractions. The same seed
 * gives the same parts.
 *
 * @throws ArgumentError for a stream, and for lengths that do not add up to the dataset's, or
 * fractions that do not to 1
 * @see PyTorch `torch.utils.data.random_split`
 * @example
 * randomSplit([1, 2, 3, 4, 5], [0.8, 0.2], { seed: 1 }).map(({ length }) => length); // [4, 1]
 */
export function randomSplit<Sample>(
  dataset: ArrayLike<Sample> | Dataset<Sample>,
  lengths: readonly number[],
  options: RandomSamplerOptions = {},
): Subset<Sample>[] {
  const op = 'randomSplit';
  const { length } = withLength(op, dataset);
  const sizes = sizesOf(op, listOf(op, 'lengths', 'a list of numbers', lengths), length);
  const order = [...new RandomSampler({ length }, optionsOf(op, options, 'seed'))];
  let end = 0;
  return sizes.map((size) => new Subset(dataset, order.slice(end, (end += size))));
}

/** Whole sizes; what fractions leave goes to the first parts, as in PyTorch. */
function sizesOf(op: string, lengths: readonly number[], length: number): number[] {
  for (const each of lengths) checkNumber(op, 'a length', each, { from: 0 });
  const sum = lengths.reduce((a, b) => a + b, 0);
  if (sum === length && lengths.every(Number.isSafeInteger)) return [...lengths];
  if (Math.abs(sum - 1) > 1e-6)
    throw new ArgumentError(
      `${op}: expected lengths whose sum is ${length}, or fractions whose sum is 1, got ${sum}`,
      { op, lengths, length },
    );
  const sizes = lengths.map((fraction) => Math.floor(fraction * length));
  const rest = length - sizes.reduce((a, b) => a + b, 0);
  return sizes.map((size, i) => (i < rest ? size + 1 : size));
}

/** @throws ArgumentError for a stream */
function withLength<Sample>(
  op: string,
  dataset: DatasetLike<Sample>,
): { length: number; get: (index: number) => Sample | Promise<Sample> } {
  const { length, get } = sourceOf(op, dataset);
  if (length === null || get === null)
    throw unexpected(op, 'dataset', 'an array or a dataset with a length', dataset);
  return { length, get };
}
