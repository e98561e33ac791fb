/** The result of ops that select values along a dim. */
import type { Tensor } from './tensor.js';

/** Values and their indices, by name or in order: `const [values, indices] = x.topk(2)`. */
export class ValuesAndIndices {
  /** The selected values. */
  readonly values: Tensor;
  /** The index of each value along the dim. */
  readonly indices: Tensor;

  constructor(values: Tensor, indices: Tensor) {
    this.values = values;
    this.indices = indices;
  }

  [Symbol.iterator](): IterableIterator<Tensor> {
    return [this.values, this.indices].values();
  }
}
