/**
 * Captures a function: runs it once on its own arguments, which have no memory meanwhile, and keeps
 * the graph of its ops and effects and the function that rebuilds its result.
 */
import { gradMode, setGradMode } from '../../autograd/grad-mode.js';
import { callContext } from '../../core/call-context.js';
import { getDefaultDevice, setDefaultDevice } from '../../core/device.js';
import { getDefaultDtype, setDefaultDtype } from '../../core/dtype.js';
import { CompileError } from '../../core/errors.js';
import { kindOf } from '../../core/options.js';
import { isPlain } from '../../core/plain-object.js';
import type { Shape } from '../../core/shape.js';
import { Tensor } from '../../core/tensor.js';
import { containsItself, map as mapTensors, tensors as tensorsIn } from '../../core/tree.js';
import type { Graph } from '../graph/graph.js';
import { metaOf, type Value } from '../graph/node.js';
import type { GuardCollector } from '../guards/guard-collector.js';
import { ModeFacts } from '../guards/modes.js';
import { isModule, listOf, sameList, Walk } from '../guards/object-walk.js';
import { type ExpectedOutput, expectedOutput } from '../outputs.js';
import { PLACE } from './functions.js';
import { refuseOpaque, watchingGenerators } from './generators.js';
import { traceHooks } from './hook-bodies.js';
import { CapturedHandle } from './hooks.js';
import { recording } from './levels.js';
import { Recorder } from './recorder.js';
import { WITHOUT_FULLGRAPH } from './refusals.js';
import { type Rebuild, rebuildFrom, withPlaces } from './results.js';
import {
  makeVersionsRelative,
  type ShownVersion,
  VersionReads,
  type VersionTrace,
} from './versions.js';

/** A function to capture. */
export type AnyFunction = (...args: unknown[]) => unknown;

/** The result of a capture. */
export interface Capture {
  readonly graph: Graph;
  /** The outputs of the graph. */
  readonly outputs: readonly ExpectedOutput[];
  /** Builds the function's result from the graph's outputs. */
  readonly rebuild: Rebuild;
}

/** The recorder of the capture in progress. */
let current: Recorder | null = null;

/** Whether a capture is in progress. */
export function isCompiling(): boolean {
  return current !== null;
}

/**
 * Identifies the capture of a whole step that is running: a key for what only that capture knows,
 * such as what the step has called before. Null where none is running.
 *
 * @example
 * const calls = new WeakMap<object, number>();
 * const count = (): void => {
 *   const step = compiler.capturedStep();
 *   if (step !== null) calls.set(step, (calls.get(step) ?? 0) + 1);
 * };
 */
export function capturedStep(): object | null {
  return current?.isWholeStep ? current : null;
}

/** Runs `fn` as a capture of the recorder. */
export function capturing<T>(recorder: Recorder, fn: () => T): T {
  const before = current;
  current = recorder;
  try {
    // No function around it: call sites are looked for among the innermost frames.
    recorder.guards.beginCapture();
    return withModesRestored(recorder, () => watchingGenerators(recorder, fn));
  } finally {
    recorder.guards.endCapture();
    current = before;
  }
}

/** Inside a capture, ends it: see {@link Recorder.unsupported}. */
export function refuse(what: string): void {
  current?.unsupported(what);
}

/**
 * Captures `fn` for these arguments. @throws CompileError if it has an effect that a graph cannot
 * repeat
 */
export function capture(
  fn: AnyFunction,
  args: readonly unknown[],
  guards: GuardCollector,
  signal: AbortSignal | null = null,
): Capture {
  const trace = (shown?: ShownVersion): Trace => traced(fn, args, guards, signal, shown);
  const first = trace();
  const { all } = first.reads;
  if (all.length === 0) return first.captured;
  const again = (shown: ShownVersion): Trace | null => {
    try {
      return trace(shown);
    } catch (error) {
      if (signal?.aborted) throw error;
      guards.restore();
      return null;
    }
  };
  const versioned = makeVersionsRelative(first, again);
  const { captured } = first;
  if (versioned !== null)
    return { ...captured, rebuild: (...run) => versioned(captured.rebuild(...run)) };
  for (const { owner } of all) guards.expectMemory(owner, 'the version');
  return captured;
}

/**
 * Captures `fn` with other shapes of its inputs, by position. The arguments have no values then.
 */
export function captureAtShapes(
  fn: AnyFunction,
  args: readonly unknown[],
  guards: GuardCollector,
  shapes: ReadonlyMap<number, Shape>,
): Capture {
  return traced(fn, args, guards, null, undefined, shapes).captured;
}

/** A capture, and what it is compared by with others of the function. */
interface Trace extends VersionTrace {
  readonly captured: Capture;
}

function traced(
  fn: AnyFunction,
  args: readonly unknown[],
  guards: GuardCollector,
  signal: AbortSignal | null,
  shown?: ShownVersion,
  shapes: ReadonlyMap<number, Shape> = new Map(),
): Trace {
  const inputs = guards.inputs();
  const reads = new VersionReads(shown);
  const recorder = new Recorder(guards, 'front', undefined, reads);
  recorder.signal = signal;
  refuseOpaque(recorder);
  const checkArguments = watchingArguments(recorder, args);
  let result: unknown;
  const captured = capturing(recorder, () => {
    result = recording(recorder, () => {
      inputs.forEach((t, i) => {
        const node = recorder.placeholder(t, i);
        const shape = shapes.get(i);
        if (shape === undefined) return;
        recorder.borrowed.reshape(t, shape);
        node.metas = [metaOf(t)];
      });
      const returned = fn(...args);
      recorder.attributes.record(recorder);
      if (containsItself(returned))
        recorder.unsupported('a result that contains itself was returned');
      // An attribute that is only returned is used: it must be the same tensor at every run.
      for (const t of tensorsIn(returned)) recorder.valueOf(t);
      return returned;
    });
    traceHooks(recorder);
    recorder.attributes.restore(recorder);
    checkArguments();
    return finished(result, args, recorder);
  });
  const changed = guards.changed();
  if (changed === undefined)
    return { captured, graph: captured.graph, template: mapTensors(() => PLACE, result), reads };
  throw new CompileError(
    `compile: the function changes ${changed} when it runs. A graph cannot repeat that: ` +
      `keep such state in a tensor, or ${WITHOUT_FULLGRAPH}`,
    { changed },
  );
}

/** Remembers what arguments hold beside tensors; the function that it returns refuses a change. */
export function watchingArguments(recorder: Recorder, args: readonly unknown[]): () => void {
  const { receiver } = recorder.guards;
  const visit = (walk: Walk): boolean => walk.value(args) && walk.value(receiver);
  const state = listOf(visit);
  return () => {
    if (!sameList(state, visit))
      recorder.unsupported(
        receiver === null
          ? 'an argument that is not a tensor was changed'
          : 'a property of this, or an argument that is not a tensor, was changed',
      );
  };
}

function finished(returned: unknown, args: readonly unknown[], recorder: Recorder): Capture {
  checkResult(returned, recorder);
  const result = withPlaces(returned, args, recorder);
  recorder.regions.check(recorder);
  const { graph } = recorder;
  const results = tensorsIn(result);
  graph.outputs = results.map((t) => recorder.valueOf(t));
  const outputs = results.map((t, i) => expectedOutput(graph.outputs[i] as Value, metaOf(t)));
  return { graph, outputs, rebuild: rebuilder(result, results, recorder) };
}

/**
 * Refuses results whose tensors {@link tensorsIn} does not find: it looks in arrays, objects and
 * maps.
 */
export function checkResult(result: unknown, recorder: Recorder): void {
  if (recorder.failedCall !== null)
    recorder.unsupported(`an error that ${recorder.failedCall} threw was caught`);
  const isPromise = result instanceof Promise;
  // What goes on after the capture fails, since its tensors have no values.
  if (isPromise) result.catch(() => {});
  if (isPromise || Object.prototype.toString.call(result) === '[object Generator]')
    recorder.unsupported(
      'the function returned before its end, as asynchronous ones and generators do,',
    );
  if (holdsFunction(result)) recorder.unsupported('a function was returned');
  const found = new Set(tensorsIn(result));
  new Walk((item) => {
    if (item instanceof CapturedHandle) recorder.unsupported('the handle of a hook was returned');
    if (!(item instanceof Tensor) || !item.isFake) return true;
    if (!found.has(item))
      recorder.unsupported('a result was returned inside a Set or an instance of a class');
    if (item.constructor !== Tensor && !recorder.isBorrowed(item) && !recorder.parameters.has(item))
      recorder.unsupported(`${kindOf(item)} was created`);
    return true;
  }).value(result);
}

/** Whether a value is a function, or has one in it: functions may hold tensors of the capture. */
function holdsFunction(value: unknown, seen = new Set<unknown>()): boolean {
  if (typeof value === 'function') return !isModule(value);
  if (typeof value !== 'object' || value === null || value instanceof Tensor || seen.has(value))
    return false;
  seen.add(value);
  if (!Array.isArray(value) && !isPlain(value)) return false;
  return Object.values(value).some((each) => holdsFunction(each, seen));
}

/** An output that is an input, or a tensor from outside, is the same object. */
function rebuilder(result: unknown, tensors: readonly Tensor[], recorder: Recorder): Rebuild {
  const sources = tensors.map((t) => {
    const at = recorder.positionOf(t);
    return at >= 0 || !recorder.isConstant(t) ? at : t;
  });
  return rebuildFrom(result, tensors, sources);
}

/** Runs `fn`, and restores modes, borrowed tensors and the stack of modules after it. */
function withModesRestored<T>(recorder: Recorder, fn: () => T): T {
  const [mode, dtype, device] = [gradMode(), getDefaultDtype(), getDefaultDevice()];
  const modes = new ModeFacts();
  const { modules } = callContext;
  callContext.moduleObservers++;
  try {
    const result = fn();
    if (!modes.matches()) recorder.unsupported('the grad mode or a default was left changed');
    if (recorder.broken !== null) throw recorder.broken;
    return result;
  } catch (error) {
    throw recorder.broken ?? error;
  } finally {
    callContext.moduleObservers--;
    callContext.modules = modules;
    recorder.restore();
    setGradMode(mode);
    setDefaultDtype(dtype);
    setDefaultDevice(device);
  }
}
