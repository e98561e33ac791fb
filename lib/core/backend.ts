/**
 * The bottom slot of the dispatcher. Running ops now, tracing and fake tensors are backends: each
 * is one object, and swapping it changes all that happens below autograd and DTensor.
 */
import type { Device } from './device.js';
import type { Layer } from './dispatch.js';
import type { DType } from './dtype.js';
import { layers } from './hooks.js';
import type { OutputMeta } from './op.js';
import type { DrawSource, Generator } from './random.js';
import type { Shape } from './shape.js';
import type { Storage } from './storage.js';
import type { GradFn, Tensor } from './tensor.js';

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

/** Changes of tensors and storages that are not ops. A trace records them. @internal */
export interface StorageEffects {
  /** Runs `storage.resize_`. */
  resize(storage: Storage, nbytes: number): void;
  /**
   * Puts the memory of `source` under `target`; with `counts` it is an in-place change (`set_`).
   */
  swap(target: Tensor, source: Tensor, counts: boolean): void;
  /** Sets the version counter that a tensor shares with its views. */
  setVersion(t: Tensor, version: number): void;
  /** Remembers the version counter. The returned function restores it. */
  keepVersion(t: Tensor): () => void;
}

/** A function that a graph calls again at every run. @internal */
export interface Applicable {
  readonly name: string;
  apply(...args: readonly unknown[]): Tensor | readonly Tensor[];
}

/** A hook of a tensor or of a node of the tape. @internal */
export type AnyHook = (...args: never[]) => unknown;

/** Where a hook is registered. @internal */
export type HookPlace =
  | { readonly kind: 'gradient'; readonly node: GradFn; readonly outputNr: number }
  | { readonly kind: 'before' | 'after' | 'observer'; readonly node: GradFn }
  | { readonly kind: 'accumulated'; readonly tensor: Tensor };
/**
 * Where a plain tensor of a captured step comes from. `made`: the step computes it from constants
 * alone, so it is equal on all ranks. `drawn`: it has random numbers of this rank. @internal
 */
export type TensorOrigin = 'made' | 'drawn' | 'other';
/** A fact of the memory of a tensor, in words. @internal */
export type MemoryFact = 'the size of the storage' | 'the storage offset' | 'the version';

/** A function that backward runs again, as a capture needs it. @internal */
export interface RecomputedRegion {
  readonly run: (
    fn: (...args: readonly unknown[]) => unknown,
    args: readonly unknown[],
    settings: unknown,
    again: <T>(fn: () => T) => T,
  ) => unknown;
  readonly settings: unknown;
  readonly preservesRng: boolean;
  readonly policy: ((op: string, ...inputs: readonly Tensor[]) => string) | null;
}

/** A hook that manages memory and communicates by itself. @internal */
export interface OpaqueHook {
  readonly call: () => void;
  /** The tensors whose memory it fills or frees. */
  readonly memory: () => readonly Tensor[];
  /** Calls the ops that do the same; null for a hook without them. */
  readonly inSteps: (() => void) | null;
}

/** What a capture observes beside ops, so that `compile` can guard on it or refuse it. @internal */
export interface CaptureHooks {
  /** Whether backward walks the history of the capture, so that it needs saved tensors. */
  readonly keepsSaved: boolean;
  /** Whether the capture runs backward passes too, with all that these call. */
  readonly isWholeStep: boolean;
  /** Records an effect of a graph whose run is captured, and returns what stands for its value. */
  repeatsEffect(name: string, operands: readonly unknown[], params: object): unknown;
  /** Where a plain tensor comes from; of others than whole steps, `other`. */
  originOf(t: Tensor): TensorOrigin;
  /** A plain tensor that a whole step makes is taken for equal on all ranks. */
  countsAsReplicated(t: Tensor): void;
  /** Whether a call of the capture made the memory of a tensor. */
  madeMemory(t: Tensor): boolean;
  /** Whether a gradient may become `.grad` without a copy: no other tensor needs its memory. */
  takesOver(grad: Tensor): boolean;
  /**
   * Called before an event that no graph can repeat, such as a hook, a seed or a backward pass.
   * Throws.
   */
  unsupported(what: string): never;
  /** Called with what decides what the program does: the capture serves while its value stays. */
  dependsOn(path: string, read: () => unknown): void;
  /** Called for what is made once. Throws: the capture begins anew when `prepare` has run. */
  beginsAnewAfter(prepare: () => void): never;
  /** Called before `what`, which only a whole step contains. Throws in other captures. */
  needsWholeStep(what: string): void;
  /** Called before a backward pass. Throws unless the capture runs it as part of the graph. */
  startsBackward(name: string): void;
  /** Called to run a backward pass. A capture of a whole step has its begin and end as effects. */
  runsPass(pass: () => void): void;
  /**
   * Called when `fn` is applied to `args`; `run` does it and returns the result. A capture may
   * repeat the call as a whole.
   */
  applies<R extends Tensor | readonly Tensor[]>(
    fn: Applicable,
    args: readonly unknown[],
    run: () => R,
  ): R;
  /** Called to run a function whose values backward computes again. */
  recomputes<A extends readonly unknown[], R>(
    region: RecomputedRegion,
    fn: (...args: A) => R,
    args: A,
  ): R;
  /** Called to run in backward what ran in forward, with the same random numbers. */
  drawsAgain<T>(run: () => T): T;
  /**
   * Called before a hook is registered. The handle, if the capture registers the hook at every run;
   * else null.
   */
  registersHook(place: HookPlace, hook: AnyHook): { remove(): void } | null;
  /**
   * Called in place of a hook that is no part of graphs. Each run of the graph does the same.
   * `readsGrad`: whether a leaf has got a gradient for it.
   */
  callsOpaque(hook: OpaqueHook, readsGrad: boolean): void;
  /**
   * Called before such a hook is registered on several tensors. Whether the capture registers it at
   * every run; else the caller does so now.
   */
  registersOpaque(tensors: readonly Tensor[], hook: () => void, mode: 'any' | 'all'): boolean;
  /** Called to run a full backward hook of a module. */
  runsModuleHook<R>(module: object, run: () => R): R;
  /** Called before code that is not an op uses the memory of a tensor. */
  usesMemory(t: Tensor): void;
  /** Called before a leaf starts or stops requiring a gradient. */
  setsRequiresGrad(t: Tensor, value: boolean): void;
  /**
   * Called when a parameter was made on the memory of `data`. It does not require a gradient yet.
   */
  createsParameter(made: Tensor, data: Tensor): void;
  /** Called before a generator draws; `source` gives the next random state of the same kind. */
  draws(generator: Generator, source: DrawSource): void;
  /** Called before a generator is seeded. */
  seeds(generator: Generator, seed: number): void;
  /**
   * Called when the state of a generator is kept. The function that it returns is called when the
   * state comes back.
   */
  keepsRng(generator: Generator): () => void;
  /** Called before the history of a tensor ends, or its gradient is kept. */
  changesHistory(t: Tensor, change: 'detach_' | 'retainGrad'): void;
  /** The version of a tensor that the program reads. */
  readsVersion(t: Tensor): number;
  /** Called when the program asks whether a tensor has a history, or is a leaf with a gradient. */
  readsHistory(t: Tensor): void;
  /** Called before `.grad` of a tensor is read. */
  readsGrad(t: Tensor): void;
  /** Called before `.grad` of a tensor is set. */
  setsGrad(t: Tensor, value: Tensor | null): void;
  /** Called before the size of the storage of a tensor, or its offset in the storage, is read. */
  readsMemory(t: Tensor, fact: MemoryFact): void;
  /** Called before a tensor becomes the result of a collective, and before it is waited for. */
  setsAsynchronous(t: Tensor, value: boolean): void;
  /** Called when a module is called or its flags are read. */
  usesModule(module: object): void;
  /** Called before a step of an optimizer, whose settings and state the capture depends on. */
  usesOptimizer(optimizer: object): void;
  /** Runs `make` as if there were no capture: it makes tensors that outlive the capture. */
  outside<T>(make: () => T): T;
}

/** The role of memory in a training program. `activation`: saved for backward, and nothing else. */
export type MemoryRole = 'parameter' | 'buffer' | 'gradient' | 'optimizerState' | 'activation';

/** Counts memory by its role: FakeTensorMode. @internal */
export interface MemoryObserver {
  /** The storage of a new fake tensor. */
  make(meta: Pick<OutputMeta, 'shape' | 'dtype' | 'device'>, nbytes: number): Storage;
  /** Gives the storage a role. */
  mark(storage: Storage | null, role: MemoryRole): void;
  /** Passes the role on when a tensor gets another storage. */
  swap(before: Storage, next: Storage): void;
  /** Called when code that is not an op reads or writes the storage. */
  use(storage: Storage | null): void;
}

/** @internal */
export interface Backend {
  /** Runs an op on plain tensors. */
  readonly run: Layer;
  /** Whether ops become commands of the addon, at once or later. */
  readonly sendsCommands: boolean;
  readonly values: ValueAccess;
  readonly effects: StorageEffects;
  /** Null while nothing is captured. */
  readonly capture: CaptureHooks | null;
  /** Null while memory is not counted. */
  readonly observer: MemoryObserver | null;
}

/** Puts a backend into the slot and returns the previous one. @internal */
export function swapBackend(backend: Backend): Backend {
  const before = layers.backend;
  layers.backend = backend;
  return before;
}
