/**
 * Records what the host runs. While a profile is recorded, a layer stands before autograd, and
 * modules, nodes of backward, steps of optimizers and compiled graphs report themselves; otherwise
 * none of this is there.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { callContext } from '../core/call-context.js';
import { callSite } from '../core/call-site.js';
import type { CollectiveEvent } from '../core/collective.js';
import type { Layer } from '../core/dispatch.js';
import { type HostProfiler, hooks, layers, type RegionKind } from '../core/hooks.js';
import type { AnyOp } from '../core/op.js';
import { currentRuntime, processRuntime, type RankRuntime } from '../core/rank-runtime.js';
import type { Tensor } from '../core/tensor.js';
import { HostEvent, type OpInputs, type ProfilerEventKind } from './host-events.js';
import { words } from './native-log.js';

/** A collective, with the number of its command. */
export interface RecordedCollective extends CollectiveEvent {
  readonly command: number;
  /** The host event that called it; 0 for none. */
  readonly op: number;
}

/**
 * Commands that a compiled graph sent, with those numbers; the modules of its kernels, in order.
 */
export interface RecordedPlan {
  readonly after: number;
  readonly last: number;
  readonly modules: readonly { readonly path: string }[];
}

/** What a session wants to have recorded, and where that goes. */
export interface HostRecord {
  readonly onHost: boolean;
  readonly recordShapes: boolean;
  readonly withModules: boolean;
  readonly withStack: boolean;
  readonly events: HostEvent[];
  readonly collectives: RecordedCollective[];
  readonly plans: RecordedPlan[];
  /** The parent of events without another one. */
  root: HostEvent | null;
}

const records = new Map<RankRuntime, HostRecord>();
/** The region of a function that has awaited something. */
const awaited = new AsyncLocalStorage<HostEvent>();
let ids = 0;
/** The innermost event that runs. */
let top: HostEvent | null = null;
let removeHooks: (() => void) | null = null;

/** Starts to record what a rank runs; for the process, what all of its ranks run. */
export function startRecord(runtime: RankRuntime, record: HostRecord): void {
  records.set(runtime, record);
  callContext.moduleObservers++;
  removeHooks ??= installHooks();
}

export function endRecord(runtime: RankRuntime): void {
  records.delete(runtime);
  callContext.moduleObservers--;
  if (records.size > 0) return;
  removeHooks?.();
  removeHooks = null;
  top = null;
  words[0] = 0;
}

/** Whether the rank, or the process that it is part of, is recorded. */
export const isRecorded = (runtime: RankRuntime): boolean => recordOf(runtime) !== null;

/** Whether anything is recorded. */
export const isRecording = (): boolean => records.size > 0;

function recordOf(runtime: RankRuntime): HostRecord | null {
  return records.get(runtime) ?? records.get(processRuntime) ?? null;
}

function installHooks(): () => void {
  const { autograd } = layers;
  const recorded = recordedLayer(autograd);
  if (layers.entry === autograd) layers.entry = recorded;
  layers.autograd = recorded;
  hooks.profiler = profiler;
  const unwatch = hooks.watchCollectives?.(addCollective);
  return () => {
    if (layers.entry === recorded) layers.entry = autograd;
    layers.autograd = autograd;
    hooks.profiler = null;
    unwatch?.();
  };
}

function recordedLayer(inner: Layer): Layer {
  return (op, inputs, params, into) => {
    const record = recordOf(currentRuntime());
    if (record === null || !record.onHost) return inner(op, inputs, params, into);
    const event = open(record, 'op', nameOf(op, inputs, into));
    if (record.recordShapes) event.inputs = inputsOf(inputs);
    if (record.withStack) event.site = callSite();
    try {
      return inner(op, inputs, params, into);
    } finally {
      close(event);
    }
  };
}

/** Of tensors; numbers, and operands that are left out, have no storage. */
function inputsOf(inputs: readonly Tensor[]): OpInputs {
  const tensors = inputs.filter(({ storage, sharding }) => storage !== null || sharding !== null);
  return {
    shapes: tensors.map(({ sizes: shape }) => shape),
    dtypes: tensors.map(({ dtype }) => dtype.name),
  };
}

/** PyTorch's name: that of a call in place ends in `_`. */
function nameOf({ name }: AnyOp, inputs: readonly Tensor[], into: Tensor | null): string {
  return into !== null && into === inputs[0] ? `${name}_` : name;
}

const profiler: HostProfiler = {
  region<T>(kind: RegionKind, subject: string | object, fn: () => T): T {
    const record = recordOf(currentRuntime());
    if (!record?.onHost || (kind === 'module' && !record.withModules)) return fn();
    const event = open(record, kind, subject);
    try {
      return fn();
    } finally {
      close(event);
    }
  },
  plan(modules, run) {
    const record = recordOf(currentRuntime());
    if (!record?.withModules) return run();
    const after = words[1] as number;
    const made = run();
    record.plans.push({ after, last: words[1] as number, modules });
    return made;
  },
};

/** Runs `fn` as a region that lasts until its promise settles, if it returns one. */
export function userRegion<T>(name: string, fn: () => T): T {
  const record = recordOf(currentRuntime());
  if (!record?.onHost) return fn();
  const event = open(record, 'user', name);
  let result: T;
  try {
    result = awaited.run(event, fn);
  } catch (error) {
    close(event);
    throw error;
  }
  if (!(result instanceof Promise)) {
    close(event);
    return result;
  }
  leave(event);
  return result.finally(() => {
    event.end = performance.now();
  }) as T;
}

function open(record: HostRecord, kind: ProfilerEventKind, subject: string | object): HostEvent {
  const event = new HostEvent(++ids, kind, subject, {
    parent: top ?? awaited.getStore() ?? record.root,
    below: top,
    modules: record.withModules ? callContext.modules : [],
    isBackward: callContext.isBackward,
    rank: hooks.rankInWorld?.()?.rank ?? null,
  });
  record.events.push(event);
  top = event;
  words[0] = event.id;
  return event;
}

function close(event: HostEvent): void {
  event.end = performance.now();
  leave(event);
}

function leave({ below }: HostEvent): void {
  top = below;
  words[0] = below?.id ?? 0;
}

/** An event that is no call: it is the parent of others from now on. */
export function openRoot(record: HostRecord, name: string): HostEvent {
  const event = new HostEvent(++ids, 'step', name, {
    parent: null,
    below: null,
    modules: [],
    isBackward: false,
    rank: hooks.rankInWorld?.()?.rank ?? null,
  });
  record.root = event;
  return event;
}

function addCollective(seen: CollectiveEvent): void {
  const record = recordOf(currentRuntime());
  record?.collectives.push({ ...seen, command: words[1] as number, op: top?.id ?? 0 });
}
