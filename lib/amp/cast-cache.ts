/**
 * Caches weights in low precision until the region ends, so that a weight used several times is
 * converted once.
 */
import type { DType } from '../core/dtype.js';
import { layers } from '../core/hooks.js';
import { heldOf } from '../core/sharding.js';
import type { Tensor } from '../core/tensor.js';

interface Kept {
  converted: Tensor;
  version: number;
}

type KeptByLeaf = Map<Tensor, Map<string, Kept>>;

export class CastCache {
  /** By leaf, then by window and dtype, because a transposed weight is a new view at every use. */
  private readonly kept: KeptByLeaf = new Map();
  /**
   * A separate cache for each capture: conversions inside it are nodes of its graph, earlier ones
   * are not.
   */
  private captured: { capture: unknown; kept: KeptByLeaf } | null = null;

  /** Converts `t`. Leaves that require a gradient, and views of them, are converted once. */
  get(t: Tensor, dtype: DType): Tensor {
    const leaf = t.base ?? t;
    if (!leaf.leafRequiresGrad) return t.to(dtype);
    const kept = this.keptNow();
    let views = kept.get(leaf);
    if (views === undefined) {
      views = new Map();
      kept.set(leaf, views);
    }
    // views of a distributed leaf differ in the windows of their local shards
    const { shape, strides, storageOffset } = heldOf(t);
    const key = `${shape.join()}/${strides.join()}+${storageOffset}:${dtype.name}`;
    const before = views.get(key);
    if (
      before !== undefined &&
      before.version === t.currentVersion &&
      before.converted.storage?.handle !== 0
    )
      return before.converted;
    const converted = t.to(dtype);
    views.set(key, { converted, version: t.currentVersion });
    return converted;
  }

  clear(): void {
    this.kept.clear();
    this.captured = null;
  }

  private keptNow(): KeptByLeaf {
    const { capture } = layers.backend;
    if (capture === null) return this.kept;
    if (this.captured?.capture !== capture) this.captured = { capture, kept: new Map() };
    return this.captured.kept;
  }
}
