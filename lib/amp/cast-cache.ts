/**
 * Caches weights in low precision until the region ends, and activations as long as they live, so
 * that a weight or the input of several layers is converted once.
 */
import { recordCall } from '../autograd/autograd-layer.js';
import { isPacking } from '../autograd/saved-tensor.js';
import type { Conversion } from '../core/autocast.js';
import type { DType } from '../core/dtype.js';
import { hooks, layers } from '../core/hooks.js';
import { type Shape, sameShape } from '../core/shape.js';
import { heldOf } from '../core/sharding.js';
import type { Storage } from '../core/storage.js';
import type { Tensor } from '../core/tensor.js';

/** The conversions of a leaf and its views; a transposed weight is a new view at every use. */
type KeptByLeaf = Map<Tensor, KeptView[]>;

type Kept = Pick<Conversion, 'converted' | 'version' | 'storage'>;

interface KeptView extends Kept {
  readonly shape: Shape;
  readonly strides: Shape;
  readonly offset: number;
}

export class CastCache {
  /**
   * A Map for each region, made when it is needed: young collections keep what an old one has held.
   */
  private kept: KeptByLeaf | null = null;
  /**
   * A separate cache for each capture: conversions inside it are nodes of its graph, earlier ones
   * are not.
   */
  private captured: { capture: unknown; kept: KeptByLeaf } | null = null;
  /** The region that an activation was converted in; its conversion serves no later one. */
  private region = {};
  /** The memory of converted weights that this cache keeps. */
  private memory: Storage[] = [];

  /** Converts `t`. Leaves that require a gradient, and views of them, are converted once. */
  get(t: Tensor, dtype: DType): Tensor {
    const leaf = t.base ?? t;
    if (!leaf.leafRequiresGrad)
      return this.isActivation(t) ? this.ofActivation(t, dtype) : t.to(dtype);
    const kept = this.keptNow();
    let views = kept.get(leaf);
    if (views === undefined) {
      views = [];
      kept.set(leaf, views);
    }
    // views of a distributed leaf differ in the windows of their local shards
    const { sizes: shape, strides, storageOffset: offset } = heldOf(t);
    for (let i = 0; i < views.length; i++) {
      const view = views[i] as KeptView;
      if (view.offset !== offset || view.converted.dtype !== dtype) continue;
      if (!sameShape(view.shape, shape) || !sameShape(view.strides, strides)) continue;
      if (isCurrent(view, t)) return view.converted;
      views.splice(i, 1);
      break;
    }
    const converted = t.to(dtype);
    this.keepMemory(converted);
    const { currentVersion: version, storage } = t;
    views.push({ converted, version, storage, shape, strides, offset });
    return converted;
  }

  /** Gradients of distributed tensors have no float32 rules, and would be added in 16 bits. */
  private isActivation(t: Tensor): boolean {
    return t.node !== null && t.sharding === null;
  }

  private ofActivation(t: Tensor, dtype: DType): Tensor {
    const before = t.conversion;
    const { capture } = layers.backend;
    const isSame =
      before !== null &&
      before.region === this.region &&
      before.converted.dtype === dtype &&
      before.capture === capture &&
      isCurrent(before, t);
    if (isSame && t.storage?.changesUnseen !== true) {
      if (!before.isRecorded) recordCopy(before, t);
      return before.converted;
    }
    t.conversion = this.conversion(t, t.to(dtype), true);
    return t.conversion.converted;
  }

  /** Keeps the conversion of an activation that was computed beside it. */
  keepConversion(t: Tensor, converted: Tensor): void {
    t.conversion = this.conversion(t, converted, false);
  }

  private conversion(t: Tensor, converted: Tensor, isRecorded: boolean): Conversion {
    const { currentVersion: version, storage } = t;
    const { region } = this;
    return { converted, version, storage, region, capture: layers.backend.capture, isRecorded };
  }

  /**
   * Keeps the memory of a converted weight as a graph does, without the tensor's token: the tensor
   * lives through collections in the region, and as an old object would keep the memory after it.
   */
  private keepMemory(converted: Tensor): void {
    const { storage } = converted;
    const isSeen = layers.backend.capture !== null || layers.hasMode || isPacking();
    if (isSeen || storage?.ownedByTensors !== true || converted.sharding !== null) return;
    storage.save();
    converted.token = null;
    this.memory.push(storage);
  }

  private letGo(): void {
    const { memory } = this;
    if (memory.length === 0) return;
    this.memory = [];
    for (const storage of memory) {
      if (storage.handle === 0) continue;
      storage.release();
      storage.endSave();
    }
  }

  clear(): void {
    this.letGo();
    this.kept = null;
    this.region = {};
    this.captured = null;
  }

  private keptNow(): KeptByLeaf {
    const { capture } = layers.backend;
    if (capture === null) return (this.kept ??= new Map());
    if (this.captured?.capture !== capture) this.captured = { capture, kept: new Map() };
    return this.captured.kept;
  }
}

/** Gives a conversion the history of one that an op of its own has made. */
function recordCopy(conversion: Conversion, t: Tensor): void {
  conversion.isRecorded = true;
  const { converted } = conversion;
  recordCall(hooks.copyOp, [t], [converted], { dtype: converted.dtype, preserve: true });
}

/** Whether the tensor was not changed since, and its conversion was not freed. */
const isCurrent = ({ converted, version, storage }: Kept, t: Tensor): boolean =>
  version === t.currentVersion && storage === t.storage && converted.storage?.handle !== 0;
