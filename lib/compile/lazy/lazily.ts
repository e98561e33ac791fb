/**
 * Runs functions in lazy segments: their JavaScript runs at every call, and the ops that they call
 * are recorded until a value is needed. Whatever reads memory, or could see that ops have not run,
 * runs what is pending first. So effects and control flow are those of an uncompiled call.
 *
 * @see LazyTensor, Suhan et al. 2021, and MLX
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Backend, StorageEffects, ValueAccess } from '../../core/backend.js';
import { deferred, runDeferred } from '../../core/deferred.js';
import type { Layer } from '../../core/dispatch.js';
import { layers } from '../../core/hooks.js';
import { moduleCalls } from '../../core/module-calls.js';
import type { Tensor } from '../../core/tensor.js';
import { readReason } from '../capture/refusals.js';
import { isObserved, reportBreak } from './breaks.js';
import type { LazyProgram } from './lazy-program.js';
import { LazySegment } from './lazy-segment.js';

type CallModule = NonNullable<(typeof moduleCalls)['run']>;

/** A call of an asynchronous function, which goes on after others have run. */
interface Continued {
  readonly segment: LazySegment;
  readonly callModule: CallModule;
  /** Whether it has ended; what it has started may run on. */
  hasEnded: boolean;
}

/** What records the ops of the running function; null while none runs. */
let current: LazySegment | null = null;
const continued = new AsyncLocalStorage<Continued>();
/** Calls of asynchronous functions that have not ended. */
let unfinished = 0;
/** The backend that runs ops. */
let eager: Backend | null = null;
const pending = new Set<LazySegment>();

/** The asynchronous call that goes on now, after an `await`. */
function goingOn(): Continued | undefined {
  if (unfinished === 0) return undefined;
  const call = continued.getStore();
  return call?.hasEnded === false ? call : undefined;
}

/** The segment of the function that runs now, if it runs lazily. */
const running = (): LazySegment | undefined => current ?? goingOn()?.segment;

function runPending(why: string | null): void {
  deferred.run = null;
  const own = running();
  if (own?.isPending && why !== null) reportBreak(own.functionName, why);
  try {
    for (const segment of pending) {
      pending.delete(segment);
      segment.isPending = false;
      if (segment === own) segment.flush();
      else flushOther(segment);
    }
  } finally {
    if (pending.size > 0) deferred.run = runPending;
  }
}

/** A function that waits gets the error of its ops when it goes on. */
function flushOther(segment: LazySegment): void {
  try {
    segment.flush();
  } catch (error) {
    segment.failure ??= error as Error;
  }
}

function addPending(segment: LazySegment): void {
  segment.isPending = true;
  pending.add(segment);
  deferred.run = runPending;
  // A function that waits for something else does not keep a device waiting.
  if (current === null) setImmediate(runLater, segment);
}

function runLater(segment: LazySegment): void {
  if (!segment.isPending) return;
  try {
    runDeferred('the function waited');
  } catch (error) {
    segment.failure ??= error as Error;
  }
}

const run: Layer = (op, inputs, params, into) => {
  const segment = running();
  if (segment !== undefined && !layers.hasMode) {
    if (segment.failure !== null) throw segment.takeFailure();
    const outputs = segment.record(op, inputs, params, into);
    if (outputs !== null) {
      if (!segment.isPending) addPending(segment);
      return outputs;
    }
  }
  if (deferred.run !== null) runDeferred(`${op.name} runs at once`);
  return (eager as Backend).run(op, inputs, params, into);
};

/** New memory does not depend on what is pending. */
function withoutPending<T>(make: () => T): T {
  const before = deferred.run;
  deferred.run = null;
  try {
    return make();
  } finally {
    deferred.run = before;
  }
}

/** Ends the segment of the running function: its pending ops run. */
export function breakSegment(why: string): void {
  const segment = running();
  if (segment !== undefined) reportBreak(segment.functionName, why);
  runDeferred(null);
}

const valuesBelow = (t: Tensor): ValueAccess => {
  breakSegment(isObserved() ? readReason(t) : '');
  return (eager as Backend).values;
};

const values: ValueAccess = {
  fromRaw: (...raw) => withoutPending(() => (eager as Backend).values.fromRaw(...raw)),
  adopt: (...array) => withoutPending(() => (eager as Backend).values.adopt(...array)),
  readSync: (...read) => valuesBelow(read[0]).readSync(...read),
  read: (...read) => valuesBelow(read[0]).read(...read),
  readElement: (t) => valuesBelow(t).readElement(t),
};

const effects: StorageEffects = {
  resize(storage, nbytes) {
    runDeferred('a storage was resized');
    (eager as Backend).effects.resize(storage, nbytes);
  },
  swap(target, source, counts) {
    runDeferred('a tensor got other memory');
    (eager as Backend).effects.swap(target, source, counts);
  },
  setVersion: (t, version) => (eager as Backend).effects.setVersion(t, version),
  keepVersion: (t) => (eager as Backend).effects.keepVersion(t),
};

const lazy: Backend = {
  run,
  sendsCommands: true,
  values,
  effects,
  capture: null,
  observer: null,
};

/**
 * Runs a function in lazy segments. `callModule` runs the modules that an asynchronous function
 * calls after its first `await`.
 */
export function lazily(program: LazyProgram, callModule: CallModule, fn: () => unknown): unknown {
  const before = layers.backend;
  if (program.isFull || !before.sendsCommands) return fn();
  runDeferred(null);
  if (before !== lazy) eager = before;
  const segment = new LazySegment(program, eager as Backend);
  if (program.isAsynchronous) return continuedRun({ segment, callModule, hasEnded: false }, fn);
  const outer = current;
  current = segment;
  layers.backend = lazy;
  try {
    const result = fn();
    if (result instanceof Promise) program.isAsynchronous = true;
    runDeferred(null);
    return result;
  } catch (error) {
    runAfterFailure();
    throw error;
  } finally {
    current = outer;
    layers.backend = unfinished > 0 ? lazy : before;
  }
}

/** Runs what the program called before it threw; that error is the one that it sees. */
function runAfterFailure(): void {
  try {
    runDeferred(null);
  } catch {
    // Its results are freed, which says why to whoever uses them.
  }
}

/** Runs an asynchronous function; it is the running one again after each of its awaits. */
async function continuedRun(call: Continued, fn: () => unknown): Promise<unknown> {
  if (unfinished++ === 0) {
    layers.backend = lazy;
    moduleCalls.run ??= callContinued;
  }
  try {
    const result = await continued.run(call, fn);
    runDeferred(null);
    if (call.segment.failure !== null) throw call.segment.takeFailure();
    return result;
  } catch (error) {
    runAfterFailure();
    throw error;
  } finally {
    call.hasEnded = true;
    if (--unfinished === 0) {
      if (layers.backend === lazy) layers.backend = eager as Backend;
      if (moduleCalls.run === callContinued) moduleCalls.run = null;
    }
  }
}

const callContinued: CallModule = (module, args, call) => {
  const caller = goingOn();
  return caller === undefined ? call(module, args) : caller.callModule(module, args, call);
};

/** Runs `fn` as if no function ran lazily: its ops run at once. */
export function immediately<T>(fn: () => T): T {
  if (layers.backend !== lazy) return fn();
  runDeferred(null);
  const outer = current;
  current = null;
  layers.backend = eager as Backend;
  try {
    return fn();
  } finally {
    current = outer;
    layers.backend = lazy;
  }
}
