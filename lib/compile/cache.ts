/** Compiled functions and modules: the captures of each, and what runs in place of a call. */
import { insideModule } from '../core/call-context.js';
import { layers } from '../core/hooks.js';
import { declareMade } from '../core/library-exports.js';
import { type ModuleCall, moduleCalls } from '../core/module-calls.js';
import type { AnyFunction } from './capture/capture.js';
import { suspends } from './capture/refusals.js';
import type { CaptureRecord } from './capture-record.js';
import { Captures } from './captures.js';
import { hasDisabledHooks, isExcluded } from './disabled.js';
import { isModule, type ModuleLike } from './guards/object-walk.js';
import type { CompileSettings } from './options.js';
import { ByReceiver } from './receivers.js';

export type { AnyFunction };

/** Captures by compiled function. They are collected with the function; `reset` drops all. */
let caches = new WeakMap<object, ByReceiver<Captures>>();
/** The captures of the compiled functions that run while a call is explained; else null. */
let explained: Set<Captures> | null = null;

/** Drops all captures of functions. */
export function reset(): void {
  caches = new WeakMap();
}

/** Runs `fn`, and returns the captures of all compiled functions that it calls. */
export function explaining<T>(fn: () => T): { result: T; records: readonly CaptureRecord[] } {
  const before = explained;
  const ran = new Set<Captures>();
  explained = ran;
  try {
    const result = fn();
    return {
      result,
      records: [...ran].flatMap(({ entries, segments }) => [...entries.all, ...segments]),
    };
  } finally {
    explained = before;
  }
}

/**
 * `fn` with a cache of captures. `module`: the one that it calls, if it calls one. If hooks of that
 * keep out of graphs, they run at every call, and the graphs are of its `forward`.
 */
export function compiledFunction(
  fn: AnyFunction,
  settings: CompileSettings,
  module: (object & ModuleLike) | null = null,
): AnyFunction {
  const run = withCaptures(fn, settings, module);
  if (module === null) return run;
  const forward = withCaptures(forwardOf(module), settings, module);
  return declareMade((...args: unknown[]) => {
    if (isExcluded()) return fn(...args);
    return hasDisabledHooks(module) ? moduleCalls.withHooks(module, args, forward) : run(...args);
  });
}

/** The `forward` of a module as a function, which runs no hooks. */
function forwardOf(module: object & ModuleLike): AnyFunction {
  const forward = (...args: readonly unknown[]): unknown => {
    layers.backend.capture?.usesModule(module);
    return insideModule(module, () => (module as unknown as WithForward).forward(...args));
  };
  return Object.defineProperty(forward, 'name', { value: module.constructor.name });
}

type WithForward = { forward(...args: readonly unknown[]): unknown };

function withCaptures(
  fn: AnyFunction,
  settings: CompileSettings,
  module: object | null,
): AnyFunction {
  return declareMade(function run(this: unknown, ...args: unknown[]): unknown {
    if (isExcluded()) return Reflect.apply(fn, this, args);
    let all = caches.get(run);
    if (all === undefined) {
      all = new ByReceiver(fn, (bound, receiver) => {
        const of = module ?? moduleIn(receiver);
        return new Captures(bound, receiver, settings, of, frameOf, module === null ? fn : null);
      });
      caches.set(run, all);
    }
    const captures = all.of(this);
    explained?.add(captures);
    return captures.call(args);
  });
}

const moduleIn = (receiver: object | null): object | null =>
  receiver !== null && isModule(receiver) ? receiver : null;

/** The compiled forms of modules that functions called which run uncompiled. */
const frames = new WeakMap<CompileSettings, WeakMap<object, AnyFunction>>();

function frameOf(module: object, call: ModuleCall, settings: CompileSettings): AnyFunction {
  let ofSettings = frames.get(settings);
  if (ofSettings === undefined) {
    ofSettings = new WeakMap();
    frames.set(settings, ofSettings);
  }
  let frame = ofSettings.get(module);
  if (frame === undefined) {
    const itself = (...args: readonly unknown[]): unknown => call(module, args);
    Object.defineProperty(itself, 'name', { value: module.constructor.name });
    frame = suspends(module) ? itself : compiledFunction(itself, settings, module as ModuleLike);
    ofSettings.set(module, frame);
  }
  return frame;
}
