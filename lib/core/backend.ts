/**
 * The bottom slot of the dispatcher. Running ops now, tracing and fake tensors are backends: each is
 * one object, and swapping it changes all that happens below autograd and DTensor.
 */
import type { Device } from './device.js';
import type { Layer } from './dispatch.js';
import type { DType } from './dtype.js';
import { layers } from './hooks.js';
import type { DrawSource, Generator } from './random.js';
import type { Shape } from './shape.js';
import type { Storage } from './storage.js';
import type { Tensor } from './tensor.js';

/** Moves values between JavaScript and device memory. @internal */
export interface ValueAccess {
  /** A new row-major tensor with a copy of the raw values. */
  fromRaw(raw: ArrayBufferView, shape: Shape, dtype: DType, device: Device): Tensor;
  /** A new row-major CPU tensor over the array's own memory. */
  adopt(array: ArrayBufferView, shape: Shape, dtype: DType): Tensor;
  /** Copies the bytes of a dense tensor; blocks. */
  readSync(t: Tensor, destination: ArrayBufferView): void;
  /** Copies the bytes of a dense tensor. */
  read(t: Tensor, destination: ArrayBufferView): Promise<void>;
  /** Reads one element; blocks. */
  readElement(t: Tensor): number | bigint;
}

/** Changes of tensors and storages that are no ops. A trace records them. @internal */
export interface StorageEffects {
  /** Runs `storage.resize_`. */
  resize(storage: Storage, nbytes: number): void;
  /** Puts the memory of `source` under `target`; `counts`: as an in-place change (`set_`). */
  swap(target: Tensor, source: Tensor, counts: boolean): void;
  /** Sets the version counter that a tensor shares with its views. */
  setVersion(t: Tensor, version: number): void;
  /** Remembers the version counter. The returned function restores it. */
  keepVersion(t: Tensor): () => void;
}

/** What a capture observes beside ops, so that `compile` can guard on it or refuse it. @internal */
export interface CaptureHooks {
  /** Something is about to happen that no graph repeats: a hook, a seed, a backward pass. Throws. */
  unsupported(what: string): never;
  /** A generator is about to draw; `source` gives the next numbers of the same kind. */
  draws(generator: Generator, source: DrawSource): void;
  /** `.grad` of a tensor is about to be read. */
  readsGrad(t: Tensor): void;
  /** A module is called, or its flags are read. */
  usesModule(module: object): void;
}

/**
 * What the memory of a training program is for. `activation`: saved for backward, and nothing else.
 */
export type MemoryRole = 'parameter' | 'buffer' | 'gradient' | 'optimizerState' | 'activation';

/** Counts memory by its role: FakeTensorMode. @internal */
export interface MemoryObserver {
  /** The storage has this role from now on. */
  mark(storage: Storage | null, role: MemoryRole): void;
  /** A tensor on one storage gets another one, which takes over the role. */
  swap(before: Storage, next: Storage): void;
  /** Something that is no op reads or writes the storage. */
  use(storage: Storage | null): void;
}

/** @internal */
export interface Backend {
  /** Runs an op on plain tensors. */
  readonly run: Layer;
  readonly values: ValueAccess;
  readonly effects: StorageEffects;
  /** Null while nothing is captured. */
  readonly capture: CaptureHooks | null;
  /** Null while nobody counts memory. */
  readonly observer: MemoryObserver | null;
}

/** Puts a backend into the slot and returns the previous one. @internal */
export function swapBackend(backend: Backend): Backend {
  const before = layers.backend;
  layers.backend = backend;
  return before;
}
