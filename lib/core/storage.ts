/**
 * Storage: a block of device memory that tensors view. It is freed when its last tensor is
 * disposed, its scope ends, or its last token is garbage collected, whichever comes first.
 * Invariant: a live storage has a token, an open scope owns it, or each tensor that the program can
 * reach has a token of it. A graph that saved such a storage has a token of its own, so it keeps
 * the memory and none of the program's tensors (docs/decisions/0012-memory-of-the-graph.md).
 */

import type { Device } from './device.js';
import { ArgumentError, FreedError } from './errors.js';
import { hooks, layers } from './hooks.js';
import { shown } from './options.js';
import type { Scope } from './scope-stack.js';

/** The functions of native memory that a storage needs. @internal */
export interface NativeMemory {
  release(handle: number): void;
  releaseMany(storages: readonly Storage[], count: number): void;
  makeToken(handle: number): object;
  /** Makes the token by which graphs keep a storage. While it is saved, no other is needed. */
  savedToken(handle: number): object;
  /** Says again that graphs need a storage with such a token. */
  save(handle: number): void;
  /** Says that none does any more. Frees one without another token: returns whether it did. */
  unsave(handle: number, bytes: number): boolean;
  resize(handle: number, bytes: number, device: Device): void;
  isPinned(handle: number): boolean;
  recordStream(handle: number, stream: number): void;
  /** Says that an outermost scope begins, and that scopes have freed many storages before. */
  startStep(): void;
  /** Says that a backward pass has ended and let its graph go. */
  endPass(): void;
}

/** The handle of a storage without memory, as under FakeTensorMode and while tracing. */
export const FAKE_HANDLE = -1;

/** The handle of a storage whose memory the ops allocate that are recorded and have not run yet. */
export const PENDING_HANDLE = -2;

/**
 * Bytes from which on tensors have the tokens: a graph then needs a token of its own, which takes
 * as long as a small kernel. @internal
 */
export const TENSORS_OWN_BYTES = 2 ** 16;

/** Ops that have not run and read a storage: how many segments of them, see `compile`. @internal */
interface PendingReads {
  segments: number;
  /** Why the storage is freed when they have run; null if it is not. */
  freedBy: string | null;
}

/** A block of memory on one device. Several tensors may view it. */
export class Storage {
  /**
   * @internal native handle; 0 once freed (or not yet allocated), FAKE_HANDLE when it never has
   * memory
   */
  handle = 0;
  /** Bytes. */
  nbytes: number;
  /** The device of the memory. */
  readonly device: Device;
  /** @internal tensors that view it and are not disposed, and other owners such as the tape */
  refs = 0;
  /** @internal owners that outlive a scope: the tape, `.grad`, `keep` */
  retains = 0;
  /** @internal those of the retains that are tensors saved for backward */
  saves = 0;
  /** @internal the tensor that alone frees the memory, see `memory.owned`; null if any may */
  owner: object | null = null;
  /** @internal the object whose garbage collection frees the memory */
  token: object | null = null;
  /** @internal whether tensors of the program have tokens of it, and it has none */
  ownedByTensors = false;
  /** @internal the token by which graphs keep the memory, also between two graphs; else null */
  private savedToken: object | null = null;
  /** @internal the open scope that will free it */
  scope: Scope | null = null;
  /**
   * @internal whether user code may have a gradient on it. Such memory never becomes another
   * `.grad`, and only the garbage collector frees it
   */
  exposed = false;
  /**
   * @internal whether its scope ended, and graphs alone keep it: tensors that gradient rules make
   * on it own nothing
   */
  ofGraphs = false;
  /** @internal whether `data` of a tensor was read: changes through it raise no version */
  changesUnseen = false;
  /** @internal those that read it when they run. They are no owners, but it is freed after them */
  pendingReads: PendingReads | null = null;
  /** @internal the reason why it was freed, for errors */
  freedBy: string | null = null;
  /** See {@link explainErrors}. */
  private explanation: string | ((offset: number) => string) | null = null;

  /** @internal */
  constructor(device: Device, nbytes: number) {
    this.device = device;
    this.nbytes = nbytes;
  }

  /** Bytes, as `torch.UntypedStorage.size`. */
  size(): number {
    return this.nbytes;
  }

  /**
   * Changes the size in bytes; the bytes that fit are kept, new ones are undefined. 0 frees the
   * memory while tensors that view it stay; reading them is an error until a later `resize_`. Used
   * by FSDP.
   *
   * Does not wait: work that was queued before still uses the old memory.
   *
   * @throws ArgumentError for a size that is not a non-negative integer. @throws FreedError if the
   * storage was freed.
   * @see PyTorch `torch.UntypedStorage.resize_`
   */
  resize_(nbytes: number): this {
    if (!Number.isSafeInteger(nbytes) || nbytes < 0) {
      throw new ArgumentError(
        `resize_: expected a size in bytes, a non-negative integer, got ${shown(nbytes)}`,
        { op: 'resize_', given: nbytes },
      );
    }
    layers.backend.effects.resize(this, nbytes);
    return this;
  }

  /**
   * Sets what errors add about a tensor on this storage: one that the storage no longer holds after
   * `resize_`, or the local shard of a distributed tensor that meets a plain one. It says what the
   * tensor is, and what the program can do. A function gets the `storageOffset` of the tensor.
   */
  explainErrors(text: string | ((offset: number) => string)): this {
    if (typeof text !== 'string' && typeof text !== 'function')
      throw new ArgumentError(
        `explainErrors: expected a text or a function that returns it, got ${shown(text)}`,
        { op: 'explainErrors' },
      );
    this.explanation = text;
    return this;
  }

  /** Makes errors add what they add about another storage, for which this one stands. @internal */
  explainAs({ explanation }: Storage): void {
    this.explanation = explanation;
  }

  /** What errors add about a tensor at an offset; null for nothing. @internal */
  explained(offset: number): string | null {
    const { explanation } = this;
    return typeof explanation === 'function' ? explanation(offset) : explanation;
  }

  /**
   * Whether this is pinned host memory, which a GPU reads and writes directly. @throws FreedError
   * if the storage was freed
   */
  isPinned(): boolean {
    this.checkAlive('isPinned');
    return this.handle !== FAKE_HANDLE && hooks.memory.isPinned(this.handle);
  }

  /** @internal the memory is not reused before the work queued on the stream is done */
  recordStream(stream: number): void {
    this.checkAlive('recordStream');
    if (this.handle !== FAKE_HANDLE) hooks.memory.recordStream(this.handle, stream);
  }

  /** @internal */
  checkAlive(op: string): void {
    if (this.handle === 0) throw freedError(this, op);
  }

  /** @internal says that the program gets a tensor on it, which lives as long as its scope now */
  showAgain(): void {
    if (!this.ofGraphs) return;
    this.ofGraphs = false;
    this.refs++;
  }

  /** @internal adds an owner, with which the storage survives its scope */
  retain(): void {
    this.refs++;
    this.retains++;
  }

  /** @internal removes an owner that {@link retain} added */
  release(): void {
    this.retains--;
    this.refs--;
    const isLetGo = this.refs === 0 || (this.ofGraphs && this.retains === 0 && !this.exposed);
    if (isLetGo && this.owner === null) this.free('its last owner let it go');
  }

  /** @internal removes a tensor as an owner, unless its scope ended */
  unref(tensor: object, reason: string): void {
    if (this.refs > this.retains) this.refs--;
    if (this.owner === null ? this.refs > 0 : this.owner !== tensor) return;
    if (this.owner === null || !this.exposed) this.free(reason);
    else {
      this.owner = null;
      this.escape();
    }
  }

  /** @internal frees the memory now, or when the ops have run that read it */
  free(reason: string): void {
    if (this.pendingReads !== null) {
      this.pendingReads.freedBy ??= reason;
      return;
    }
    if (this.handle > 0) hooks.memory.release(this.handle);
    this.markFreed(reason);
  }

  /** @internal counts a segment of ops that will read it */
  addPendingRead(): void {
    this.pendingReads ??= { segments: 0, freedBy: null };
    this.pendingReads.segments++;
  }

  /** @internal */
  endPendingRead(): void {
    const reads = this.pendingReads as PendingReads;
    if (--reads.segments > 0) return;
    this.pendingReads = null;
    if (reads.freedBy !== null) this.free(reads.freedBy);
  }

  /** @internal */
  markFreed(reason: string): void {
    this.handle = 0;
    this.token = null;
    this.ownedByTensors = false;
    this.savedToken = null;
    this.scope = null;
    this.freedBy = reason;
  }

  /** @internal gives a storage that leaves all scopes to the garbage collector */
  escape(): void {
    this.scope = null;
    if (this.token === null && this.owner === null && this.handle > 0 && !this.ownedByTensors)
      this.token = hooks.memory.makeToken(this.handle);
  }

  /** @internal gives a storage that leaves all scopes to the only tensors on it, if it is large */
  escapeTo(tensors: Iterable<{ token: object | null }>): void {
    this.escape();
    const { token } = this;
    if (token === null || this.exposed) return;
    this.token = null;
    for (const t of tensors) this.giveToken(t, token);
  }

  /** @internal gives a token to a tensor, one of the only ones on the storage, if it is large */
  giveToken(t: { token: object | null }, token: object): void {
    if (this.nbytes < TENSORS_OWN_BYTES) this.token = token;
    else {
      this.ownedByTensors = true;
      t.token = token;
    }
  }

  /** @internal gets a token, because something without one leaves the library */
  ownToken(): void {
    if (!this.ownedByTensors) return;
    this.ownedByTensors = false;
    this.token = hooks.memory.makeToken(this.handle);
  }

  /** @internal keeps the memory for a graph, which keeps no tensor with a token */
  save(): void {
    this.retain();
    if (this.savedToken === null) this.savedToken = hooks.memory.savedToken(this.handle);
    else if (this.retains === 1) hooks.memory.save(this.handle);
  }

  /** @internal frees what a graph alone kept, once no owner is left that {@link retain} added */
  endSave(): void {
    if (this.savedToken === null || this.retains > 0 || this.scope !== null || this.handle <= 0)
      return;
    if (hooks.memory.unsave(this.handle, this.nbytes)) this.markFreed('its last graph let it go');
  }

  /** @internal takes a storage out of its scope and of all counts: `owner` alone frees it */
  giveTo(owner: object): void {
    this.scope = null;
    this.owner = owner;
  }

  /** @internal marks that user code sees a gradient on it, or has passed one */
  expose(): void {
    this.exposed = true;
    this.ownToken();
    if (this.scope?.ofBackward === true) this.scope.handOut(this);
  }

  /** @internal */
  resizeNow(nbytes: number): void {
    this.checkAlive('resize_');
    if (this.handle !== FAKE_HANDLE) hooks.memory.resize(this.handle, nbytes, this.device);
    this.nbytes = nbytes;
  }
}

/** @internal */
export function releaseAll(storages: readonly Storage[], count: number): void {
  hooks.memory.releaseMany(storages, count);
}

/** What the program does about a freed tensor. @internal */
export const OUTLIVES_ITS_SCOPE =
  'A tensor that must outlive its scope is returned from it, or passed to keep(). Results are ' +
  'followed in arrays, objects, Maps, Sets and properties of instances, not in private fields, ' +
  'getters and closures.';

/** @internal */
export function freedError(storage: Storage, op: string): FreedError {
  const reason = storage.freedBy ?? 'it was never allocated';
  return new FreedError(
    `${op}: the memory of this tensor was freed (${reason}). ${OUTLIVES_ITS_SCOPE}`,
    { op, reason },
  );
}
