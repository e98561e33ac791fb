/**
 * Replaces the memory of a tensor, for `set_`, `data =` and `module.to`. The tensor keeps its
 * identity, hooks, gradient and place in the graph. Invariant: all owners of the old memory through
 * this tensor own the new memory afterwards.
 */
import type { StorageEffects } from './backend.js';
import { runDeferred } from './deferred.js';
import { layers } from './hooks.js';
import { outliveScope } from './scope-stack.js';
import type { Storage } from './storage.js';
import type { Tensor } from './tensor.js';

/**
 * Makes `target` a tensor on the memory of `source`, with its shape, strides, offset, dtype and
 * device. Frees the old memory if no other tensor uses it. The new memory lives at least as long as
 * the old one would have. The caller updates versions.
 *
 * @throws FreedError if either tensor was freed.
 * @internal
 */
export function swapData(target: Tensor, source: Tensor): void {
  runDeferred('a tensor got other memory');
  const before = target.liveStorage('set_');
  const next = source.liveStorage('set_');
  target.sizes = source.sizes;
  target.strides = source.strides;
  target.storageOffset = source.storageOffset;
  target.dtype = source.dtype;
  (target as { device: Tensor['device'] }).device = source.device;
  target.sharding = source.sharding;
  for (let { standIn } = target; standIn !== null; standIn = standIn.standIn)
    swapSaved(standIn, target, before, next);
  if (next === before) return;
  layers.backend.observer?.swap(before, next);
  target.storage = next;
  target.token = source.token;
  if (source.token === null) next.ownToken();
  outliveScope(next, before.scope);
  next.refs += 1 + target.retains;
  next.retains += target.retains;
  before.refs -= target.retains;
  before.retains -= target.retains;
  before.unref(target, 'another storage took its place');
  before.endSave();
}

/** The graphs that saved the tensor read the new memory too. */
function swapSaved(standIn: Tensor, target: Tensor, before: Storage, next: Storage): void {
  const { retains } = standIn;
  standIn.sizes = target.sizes;
  standIn.strides = target.strides;
  standIn.storageOffset = target.storageOffset;
  standIn.dtype = target.dtype;
  (standIn as { device: Tensor['device'] }).device = target.device;
  if (standIn.storage !== before || next === before) return;
  standIn.storage = next;
  if (retains === 0) return;
  next.ownToken();
  next.refs += retains;
  next.retains += retains;
  next.saves += retains;
  before.refs -= retains;
  before.retains -= retains;
  before.saves -= retains;
}

/**
 * Swaps, and gives the tensor a new version counter: earlier views keep the old memory, so a change
 * of one no longer affects the other. A view that gets other memory is no longer a view.
 */
function swap(target: Tensor, source: Tensor, counts: boolean): void {
  const node = target.gradFn; // read while the tensor is still a view of its base
  swapData(target, source);
  target.versionCounter = { value: target.currentVersion + (counts ? 1 : 0) };
  for (let { standIn } = target; standIn !== null; standIn = standIn.standIn)
    standIn.versionCounter = target.versionCounter;
  // As in every distributed tensor: graphs change the local shard, and that counts for the whole.
  if (target.sharding !== null) target.sharding.local.versionCounter = target.versionCounter;
  target.base = null;
  target.node = node;
  target.inPlaceForbidden = null;
}

/** Performs the changes themselves, which a trace records. @internal */
export const directEffects: StorageEffects = {
  resize: (storage, nbytes) => storage.resizeNow(nbytes),
  swap,
  setVersion(t, version) {
    t.sharedVersion().value = version;
  },
  keepVersion(t) {
    const version = t.currentVersion;
    return () => layers.backend.effects.setVersion(t, version);
  },
};
