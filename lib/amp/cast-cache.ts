/**
 * Caches weights in low precision until the region ends, and the last activation, so that a weight
 * or the input of several layers is converted once.
 */
import type { DType } from '../core/dtype.js';
import { layers } from '../core/hooks.js';
import { heldOf } from '../core/sharding.js';
import type { Tensor } from '../core/tensor.js';

interface Kept {
  converted: Tensor;
  version: number;
}

/** An activation, as the input of the projections to queries, keys and values. */
interface LastConverted extends Kept {
  activation: Tensor;
  dtype: DType;
  capture: unknown;
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

  private last: LastConverted | null = null;

  /** Converts `t`. Leaves that require a gradient, and views of them, are converted once. */
  get(t: Tensor, dtype: DType): Tensor {
    const leaf = t.base ?? t;
    if (!leaf.leafRequiresGrad)
      return t.sharding === null ? this.ofActivation(t, dtype) : t.to(dtype);
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
    if (before !== undefined && isCurrent(before, t)) return before.converted;
    const converted = t.to(dtype);
    views.set(key, { converted, version: t.currentVersion });
    return converted;
  }

  /** Converts `t`, unless it was the last to be converted. */
  private ofActivation(t: Tensor, dtype: DType): Tensor {
    const { last } = this;
    const { capture } = layers.backend;
    if (
      last?.activation === t &&
      last.dtype === dtype &&
      last.capture === capture &&
      isCurrent(last, t)
    )
      return last.converted;
    const converted = t.to(dtype);
    this.last = { activation: t, dtype, capture, converted, version: t.currentVersion };
    return converted;
  }

  clear(): void {
    this.kept.clear();
    this.last = null;
    this.captured = null;
  }

  private keptNow(): KeptByLeaf {
    const { capture } = layers.backend;
    if (capture === null) return this.kept;
    if (this.captured?.capture !== capture) this.captured = { capture, kept: new Map() };
    return this.captured.kept;
  }
}

/** Whether the tensor was not changed since, and its conversion was not freed. */
const isCurrent = ({ converted, version }: Kept, t: Tensor): boolean =>
  version === t.currentVersion && converted.storage?.handle !== 0;
