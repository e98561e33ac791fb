/** Weights in low precision, kept while a region lasts: a weight that is used several times is converted once. */
import type { DType } from '../core/dtype.js';
import type { Tensor } from '../core/tensor.js';

interface Kept {
  converted: Tensor;
  version: number;
}

export class CastCache {
  /** By leaf, then by the window of the leaf that is seen (a transposed weight is another view at every use) and dtype. */
  private readonly kept = new Map<Tensor, Map<string, Kept>>();

  /** `t` in another dtype. Leaves that require a gradient, and views of them, are converted once. */
  get(t: Tensor, dtype: DType): Tensor {
    const leaf = t.base ?? t;
    if (!leaf.leafRequiresGrad) return t.to(dtype);
    let views = this.kept.get(leaf);
    if (views === undefined) {
      views = new Map();
      this.kept.set(leaf, views);
    }
    const key = `${t.shape.join()}/${t.strides.join()}+${t.storageOffset}:${dtype.name}`;
    const before = views.get(key);
    if (before !== undefined && before.version === t._version && before.converted.storage?.handle !== 0) return before.converted;
    const converted = t.to(dtype);
    views.set(key, { converted, version: t._version });
    return converted;
  }

  clear(): void {
    this.kept.clear();
  }
}
