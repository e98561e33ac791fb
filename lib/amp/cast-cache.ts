/**
 * Caches weights in low precision until the region ends, and activations as long as they live, so
 * that a weight or the input of several layers is converted once.
 */
import { recordCall } from '../autograd/autograd-layer.js';
import type { DType } from '../core/dtype.js';
import { hooks, layers } from '../core/hooks.js';
import { heldOf } from '../core/sharding.js';
import type { Storage } from '../core/storage.js';
import type { Tensor } from '../core/tensor.js';

interface Kept {
  converted: Tensor;
  version: number;
  /** The memory that was converted, which `data` may replace. */
  storage: Storage | null;
}

/** The conversion of an activation, as of the input of the projections to queries and keys. */
interface KeptActivation extends Kept {
  dtype: DType;
  capture: unknown;
  /** Whether the tape has it; not if the op that computed the activation has written it, too. */
  isRecorded: boolean;
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

  private activations = new WeakMap<Tensor, KeptActivation>();

  /** Converts `t`. Leaves that require a gradient, and views of them, are converted once. */
  get(t: Tensor, dtype: DType): Tensor {
    const leaf = t.base ?? t;
    if (!leaf.leafRequiresGrad)
      return this.isActivation(t) ? this.ofActivation(t, dtype) : t.to(dtype);
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
    views.set(key, { converted, version: t.currentVersion, storage: t.storage });
    return converted;
  }

  /** Gradients of distributed tensors have no float32 rules, and would be added in 16 bits. */
  private isActivation(t: Tensor): boolean {
    return t.node !== null && t.sharding === null;
  }

  private ofActivation(t: Tensor, dtype: DType): Tensor {
    const before = this.activations.get(t);
    const { capture } = layers.backend;
    const isSame = before?.dtype === dtype && before.capture === capture && isCurrent(before, t);
    if (isSame && t.storage?.changesUnseen !== true) {
      if (!before.isRecorded) recordCopy(before, t);
      return before.converted;
    }
    const converted = t.to(dtype);
    this.keep(t, converted, true);
    return converted;
  }

  /** Keeps the conversion of an activation that was computed beside it. */
  keepConversion(t: Tensor, converted: Tensor): void {
    this.keep(t, converted, false);
  }

  private keep(t: Tensor, converted: Tensor, isRecorded: boolean): void {
    const { currentVersion: version, storage } = t;
    const { capture } = layers.backend;
    const { dtype } = converted;
    this.activations.set(t, { converted, version, storage, dtype, capture, isRecorded });
  }

  clear(): void {
    this.kept.clear();
    this.activations = new WeakMap();
    this.captured = null;
  }

  private keptNow(): KeptByLeaf {
    const { capture } = layers.backend;
    if (capture === null) return this.kept;
    if (this.captured?.capture !== capture) this.captured = { capture, kept: new Map() };
    return this.captured.kept;
  }
}

/** Gives a conversion the history of one that an op of its own has made. */
function recordCopy(kept: KeptActivation, t: Tensor): void {
  kept.isRecorded = true;
  const { converted, dtype } = kept;
  recordCall(hooks.copyOp, [t], [converted], { dtype, preserve: true });
}

/** Whether the tensor was not changed since, and its conversion was not freed. */
const isCurrent = ({ converted, version, storage }: Kept, t: Tensor): boolean =>
  version === t.currentVersion && storage === t.storage && converted.storage?.handle !== 0;
