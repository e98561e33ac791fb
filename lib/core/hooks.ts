/**
 * The seams of the library: what a lower layer calls and a higher layer provides. Imports run
 * downwards only, so lib/runtime.ts assigns these at start, and lib/runtime-distributed.ts those
 * that only programs of several ranks need. Nothing else assigns `hooks`. Of `layers`, mixed
 * precision replaces `entry`, a dispatch mode `dtensor` and swapBackend `backend` while they are
 * on.
 */
import type { OperandConverter } from './autocast.js';
import type { Backend } from './backend.js';
import type { CollectiveEvent } from './collective.js';
import type { Device } from './device.js';
import type { Layer } from './dispatch.js';
import { ShardwiseError } from './errors.js';
import type { AnyOp } from './op.js';
import type { RankRuntime } from './rank-runtime.js';
import type { NativeMemory } from './storage.js';
import type { Tensor } from './tensor.js';

/** The layers of the dispatcher, in the order in which an op passes them. @internal */
export interface Layers {
  /** Where calls enter: autograd, or the layer of mixed precision before it. */
  entry: Layer;
  autograd: Layer;
  /** Null until distributed tensors are loaded. */
  dtensor: Layer | null;
  /** Whether `dtensor` is a dispatch mode, which sees every call. */
  hasMode: boolean;
  backend: Backend;
}

/** What a {@link HostProfiler} calls a region by. @internal */
export type RegionKind = 'module' | 'node' | 'backward' | 'optimizer' | 'compiled' | 'compile';

/** Sees what the host runs while a profile is recorded. @internal */
export interface HostProfiler {
  /** Runs `fn` as a region. `subject`: its name, or the module that runs. */
  region<T>(kind: RegionKind, subject: string | object, fn: () => T): T;
  /**
   * Runs the commands of a compiled graph; `modules`: those that its kernels come from, in order.
   */
  plan<T>(modules: readonly { readonly path: string }[], run: () => T): T;
}

/** @internal */
export interface Hooks {
  /** Frees and resizes native memory; see storage.ts. */
  memory: NativeMemory;
  /** Opens the backend of a device before its first use; throws if that is not possible. */
  prepareDevice(device: Device): void;
  /** Gives a view its new history after its base was changed in place. */
  refreshViewHistory(view: Tensor): void;
  /** Converts operands by a policy of mixed precision. */
  operands: OperandConverter;
  /** Returns the precisions that are on, as text. Graphs captured under others do not apply. */
  autocastState(): string;
  /** The copy op of the backend, for `updates`, `out` and `move`. */
  copyOp: AnyOp;
  /** Finds the rank that the running code is part of, where several ranks share the process. */
  findRank: (() => RankRuntime | undefined) | null;
  /** Returns the number of the running rank and of all ranks; null outside of ranks. */
  rankInWorld: (() => { readonly rank: number; readonly worldSize: number } | null) | null;
  /** Calls `watcher` with every collective, until the returned function is called. */
  watchCollectives: ((watcher: (seen: CollectiveEvent) => void) => () => void) | null;
  /** Null while no profile is recorded. */
  profiler: HostProfiler | null;
}

/** A stand-in for a hook before it is assigned; it throws when it is used. */
function notInstalled<T extends object>(name: string): T {
  const fail = (): never => {
    throw new ShardwiseError(
      'ERR_OP',
      `internal error: lib/runtime.ts has not installed ${name}. Import the package by its ` +
        'public entry point.',
      { hook: name },
    );
  };
  return new Proxy(fail, { get: fail }) as unknown as T;
}

/** @internal */
export const layers: Layers = {
  entry: notInstalled('layers.entry'),
  autograd: notInstalled('layers.autograd'),
  dtensor: null,
  hasMode: false,
  backend: {
    run: notInstalled('layers.backend'),
    sendsCommands: false,
    values: notInstalled('layers.backend'),
    effects: notInstalled('layers.backend'),
    capture: null,
    observer: null,
  },
};

/** @internal */
export const hooks: Hooks = {
  memory: notInstalled('hooks.memory'),
  prepareDevice: notInstalled('hooks.prepareDevice'),
  refreshViewHistory: notInstalled('hooks.refreshViewHistory'),
  operands: notInstalled('hooks.operands'),
  autocastState: notInstalled('hooks.autocastState'),
  copyOp: notInstalled('hooks.copyOp'),
  findRank: null,
  rankInWorld: null,
  watchCollectives: null,
  profiler: null,
};

/** Runs `fn`; a profile shows it as a region. @internal */
export function inRegion<T>(kind: RegionKind, subject: string | object, fn: () => T): T {
  return hooks.profiler === null ? fn() : hooks.profiler.region(kind, subject, fn);
}
