/**
 * A tensor saved for a gradient rule: a reference, and a check that it was not overwritten. Large
 * tensors of the program have stand-ins without tokens: a reference from the graph would make the
 * tensor an old object, whose memory only a full collection frees.
 */

import { aliasOf } from '../core/alias-of.js';
import { InPlaceError } from '../core/errors.js';
import { layers, hooks as library } from '../core/hooks.js';
import { checkFunction, optionsOf, unexpected } from '../core/options.js';
import { outsideScopes } from '../core/scope-stack.js';
import type { Storage } from '../core/storage.js';
import { type GradFn, Tensor } from '../core/tensor.js';
import { reportUseOutsideSteps } from '../core/unrepeatable.js';

/** Options of {@link savedTensorsHooks}. */
export interface SavedTensorsHooksOptions<P = unknown> {
  /**
   * Runs when the graph needs a packed value no more: after a backward pass that does not retain
   * the graph. For a graph that is dropped without one it never runs.
   */
  release?: (packed: P) => void;
}

/** The functions that replace saved tensors, see {@link savedTensorsHooks}. */
interface SavedTensorsHooks {
  readonly pack: (t: Tensor) => unknown;
  readonly unpack: (packed: unknown) => Tensor;
  readonly release: ((packed: unknown) => void) | null;
}

let hooks: SavedTensorsHooks | null = null;

/**
 * Inside `fn`, every tensor saved for backward is passed to `pack`, whose result is kept instead;
 * backward gets the tensor back from `unpack`. Use it for offloading to the host, compression, or
 * recomputation. Backward may call `unpack` several times for one value.
 *
 * @see PyTorch `torch.autograd.graph.saved_tensors_hooks`, which has no `release`: Python counts
 * references
 */
export function savedTensorsHooks<T, P>(
  pack: (t: Tensor) => P,
  unpack: (packed: P) => Tensor,
  fn: () => T,
  options: SavedTensorsHooksOptions<P> = {},
): T {
  reportUseOutsideSteps('savedTensorsHooks');
  for (const [name, value] of Object.entries({ pack, unpack, fn }))
    checkFunction('savedTensorsHooks', name, value);
  const { release = null } = optionsOf('savedTensorsHooks', options, 'release');
  if (release !== null) checkFunction('savedTensorsHooks', 'release', release);
  const before = hooks;
  hooks = { pack, unpack, release } as SavedTensorsHooks;
  try {
    return fn();
  } finally {
    hooks = before;
  }
}

/**
 * Inside `fn`, tensors are saved as without {@link savedTensorsHooks}.
 *
 * @throws ArgumentError for what is no function
 */
export function withoutSavedTensorsHooks<T>(fn: () => T): T {
  checkFunction('withoutSavedTensorsHooks', 'fn', fn);
  const before = hooks;
  hooks = null;
  try {
    return fn();
  } finally {
    hooks = before;
  }
}

/** Whether the program packs what is saved. */
export const isPacking = (): boolean => hooks !== null;

const changedByPack = ({ sizes: shape, dtype }: Tensor): InPlaceError =>
  new InPlaceError(
    `savedTensorsHooks: pack changed its argument, ${dtype.name}[${shape.join(', ')}], in place. ` +
      'The op has still to read it: return a changed copy instead.',
    { op: 'savedTensorsHooks', shape },
  );

export class SavedTensor {
  private tensor: Tensor | null;
  private readonly version: number;
  private readonly node: GradFn | null;
  private readonly outputNr: number;
  private readonly isOutput: boolean;
  /**
   * The memory of a saved output; null for a saved input, which is read from the memory that the
   * tensor has in backward.
   */
  private readonly storage: Storage | null;
  private readonly hooks: SavedTensorsHooks | null = null;
  private readonly ownsMemory: boolean = true;
  /** Whether `tensor` is not that of the program, and has no token of its memory. */
  private readonly isStandIn: boolean = false;
  private standIn: (() => Tensor) | null = null;
  private packed: unknown = null;
  /** The packed leaf, which gets the gradient of the unpacked tensor. */
  private leaf: Tensor | null = null;

  /**
   * `maker` is the node itself if an output is saved. It is not stored, since that would be a
   * cycle; `unpack` gets it again. An output without a gradient (a mask, indices, statistics) is
   * unpacked without history.
   */
  constructor(t: Tensor, maker: GradFn | null, hasGradient = true) {
    this.version = t.currentVersion;
    this.isOutput = maker !== null && hasGradient;
    this.node = maker === null ? t.currentGradFn : null;
    this.outputNr = t.outputNr;
    this.storage = maker === null ? null : t.storage;
    const { capture } = layers.backend;
    if (hooks !== null && t.storage !== null && (capture === null || capture.isWholeStep)) {
      this.hooks = hooks;
      this.packed = hooks.pack(t);
      if (t.currentVersion !== this.version) throw changedByPack(t);
      if (this.packed instanceof Tensor) this.packed.retain();
      this.leaf = t.leafRequiresGrad ? t : null;
      this.tensor = null;
      return;
    }
    if (capture !== null) {
      // There is no memory in a capture that a saved tensor could own.
      this.tensor = capture.keepsSaved ? t : null;
      this.ownsMemory = false;
      return;
    }
    layers.backend.observer?.mark(t.storage, 'activation');
    const { storage } = t;
    this.isStandIn = storage?.ownedByTensors === true && t.sharding === null && !t.leafRequiresGrad;
    if (this.isStandIn) {
      this.tensor = standInOf(t, storage as Storage);
      if (maker === null) this.tensor.retains++;
      (storage as Storage).save();
    } else {
      this.tensor = t;
      if (maker === null) t.retain();
      else this.storage?.retain();
    }
    if (storage !== null) storage.saves++;
  }

  /** Whether hooks of the program pack and unpack it. */
  get hasHooks(): boolean {
    return this.hooks !== null;
  }

  /** Whether {@link unpack} throws, because it was changed in place since. */
  get isOverwritten(): boolean {
    const { tensor: t } = this;
    if (t === null || t.storage === null || this.standIn !== null) return false;
    return t.currentVersion !== this.version;
  }

  /** Makes {@link unpack} return these tensors while a backward pass is captured; null ends it. */
  lend(value: (() => Tensor) | null): void {
    this.standIn = value;
  }

  /**
   * The saved value. Its history is that of the saved tensor; without `needsHistory`, a tensor from
   * a hook has its own, and a stand-in none. `leaves`: whether it may leave the library.
   *
   * @throws InPlaceError if it was overwritten since.
   */
  unpack(op: string, role: string, maker: GradFn, needsHistory: boolean, leaves = false): Tensor {
    const { hooks: own } = this;
    if (this.standIn !== null) return this.standIn();
    if (own !== null) {
      const unpacked = outsideScopes(() => own.unpack(this.packed));
      if (!(unpacked instanceof Tensor))
        throw unexpected('savedTensorsHooks', 'what unpack returns', 'a tensor', unpacked);
      return needsHistory ? this.withSavedHistory(unpacked, maker) : unpacked;
    }
    const t = this.tensor as Tensor;
    if (t.storage === null) return t;
    if (t.currentVersion !== this.version) throw overwritten(op, role, t, this.version);
    if (this.storage !== null && this.storage !== t.storage && !t.disposed)
      throw swappedAway(op, role, t);
    const node = this.isOutput ? maker : this.node;
    if (this.isStandIn) {
      if (!needsHistory && !leaves) return t;
      const own = withHistory(t, null, t.storage, node, this.outputNr);
      own.token = library.memory.makeToken(t.storage.handle);
      return own;
    }
    if (leaves) t.storage.showAgain();
    if (!t.disposed && t.node === node) return t;
    return withHistory(t, t, this.storage ?? t.storage, node, this.outputNr);
  }

  /** The saved output, if only the tape owns its memory; else null. */
  take(): Tensor | null {
    const { tensor: t, storage } = this;
    if (
      !this.ownsMemory ||
      this.standIn !== null ||
      t === null ||
      storage === null ||
      t.disposed ||
      t.storage !== storage ||
      storage.owner !== null ||
      t.currentVersion !== this.version
    )
      return null;
    return storage.retains === 1 && storage.refs <= 2 ? t : null;
  }

  /** The tensor from the `unpack` hook with the history of the saved one. */
  private withSavedHistory(t: Tensor, maker: GradFn): Tensor {
    const node = this.isOutput ? maker : this.node;
    if (t === this.leaf || (this.leaf === null && t.node === node && !t.leafRequiresGrad)) return t;
    return withHistory(t, this.leaf, t.storage, node, this.outputNr);
  }

  release(): void {
    if (!this.ownsMemory) {
      this.tensor = null;
      return;
    }
    const held = this.tensor === null ? null : (this.storage ?? this.tensor.storage);
    if (held !== null) held.saves--;
    if (this.storage === null) this.tensor?.release();
    else if (this.tensor !== null && this.storage.handle !== 0) this.storage.release();
    held?.endSave();
    const { hooks: own, packed } = this;
    this.tensor = null;
    this.packed = null;
    this.leaf = null;
    if (packed instanceof Tensor) packed.release();
    const release = own?.release ?? null;
    if (release !== null) outsideScopes(() => release(packed));
  }
}

/**
 * What graphs keep in place of a tensor. It is no owner of the memory: each of them adds itself as
 * one.
 */
function standInOf(t: Tensor, storage: Storage): Tensor {
  const { standIn: known, sizes: shape, strides, storageOffset, dtype } = t;
  if (
    known?.storage === storage &&
    known.sizes === shape &&
    known.strides === strides &&
    known.storageOffset === storageOffset &&
    known.dtype === dtype
  )
    return known;
  const standIn = new Tensor(shape, strides, storageOffset, dtype, t.device, null);
  standIn.storage = storage;
  standIn.versionCounter = t.sharedVersion();
  // A graph that saved another layout of the tensor follows it, too, to other memory.
  if (known !== null && known.retains > 0) standIn.standIn = known;
  t.standIn = standIn;
  return standIn;
}

/**
 * A new tensor object on the same memory, with the saved history. Needed if the saved tensor was
 * disposed, came from a hook, or got a new history by an in-place change.
 */
function withHistory(
  t: Tensor,
  leaf: Tensor | null,
  storage: Storage | null,
  node: GradFn | null,
  outputNr: number,
): Tensor {
  const alias = aliasOf(t, storage);
  alias.versionCounter = t.versionCounter;
  alias.node = node;
  alias.outputNr = outputNr;
  if (node === null && leaf !== null) {
    alias.leafRequiresGrad = leaf.leafRequiresGrad;
    alias.gradAccumulator = leaf.gradAccumulator;
  }
  return alias;
}

function overwritten(op: string, role: string, t: Tensor, version: number): InPlaceError {
  return new InPlaceError(
    `backward of ${op} needs ${role}, ${t.dtype.name}[${t.sizes.join(', ')}], but it was ` +
      `changed in place after it was saved: it was at version ${version}, ` +
      `now ${t.currentVersion}. Use the out-of-place op, or clone() it before the change.`,
    { op, role, saved: version, now: t.currentVersion },
  );
}

function swappedAway(op: string, role: string, t: Tensor): InPlaceError {
  return new InPlaceError(
    `backward of ${op} needs ${role}, ${t.dtype.name}[${t.sizes.join(', ')}], but set_ or ` +
      '`data =` gave that tensor other memory after it was saved. Change the memory of a ' +
      'tensor before the forward pass or after backward, or assign to a detached copy.',
    { op, role },
  );
}
