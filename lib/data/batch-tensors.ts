/** Batches of tensors: the second step of collating. */
import { getDefaultDtype, stack, Tensor, type TensorOptions, tensor } from '../index.js';
import { type Collated, collateArrays, type HostArray, type HostBatch } from './collate.js';

/** How the tensors of a batch are made. */
export type TensorPlace = Pick<TensorOptions, 'device' | 'pinMemory'>;

/** The batch with tensors in place of its arrays. */
export function toTensors(batch: HostBatch, place: TensorPlace): unknown {
  switch (batch.kind) {
    case 'array':
      return ofArray(batch, place);
    case 'list':
      return batch.items.map((each) => toTensors(each, place));
    case 'record':
      return Object.fromEntries(
        Object.entries(batch.items).map(([name, each]) => [name, toTensors(each, place)]),
      );
    case 'values':
      return batch.values[0] instanceof Tensor ? stack(batch.values as Tensor[]) : batch.values;
  }
}

function ofArray({ data, shape, dtype }: HostArray, place: TensorPlace): Tensor {
  const options =
    dtype === 'own' ? place : { ...place, dtype: dtype === 'default' ? getDefaultDtype() : dtype };
  return tensor(data, options).reshape(shape);
}

/**
 * Makes a batch of samples: numbers, typed arrays and tensors get a dim in front, objects and tuples
 * of them are batches of each of their values, and strings become a list. Arrays of numbers are
 * tensors too, not lists of tensors as in PyTorch.
 *
 * @throws DataError for samples that differ in kind or shape, with the path of the value
 * @see PyTorch `torch.utils.data.default_collate`
 * @example
 * const { x, name } = defaultCollate([{ x: [1, 2], name: 'a' }, { x: [3, 4], name: 'b' }]);
 * x.shape; // [2, 2]
 */
export function defaultCollate<Sample>(samples: readonly Sample[]): Collated<Sample> {
  return toTensors(collateArrays(samples), {}) as Collated<Sample>;
}
