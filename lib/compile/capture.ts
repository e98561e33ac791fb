/**
 * Captures a function: runs it once on fake tensors, with every op and every effect sent to a
 * tracer, and keeps the graph and the function that rebuilds its result.
 */
import { gradMode, setGradMode } from '../autograd/grad-mode.js';
import {
  type Backend,
  type StorageEffects,
  swapBackend,
  type ValueAccess,
} from '../core/backend.js';
import { getDefaultDevice, setDefaultDevice } from '../core/device.js';
import { getDefaultDtype, setDefaultDtype } from '../core/dtype.js';
import { CompileError } from '../core/errors.js';
import { layers } from '../core/hooks.js';
import { kindOf } from '../core/options.js';
import { keep } from '../core/scope.js';
import { Tensor } from '../core/tensor.js';
import { map as mapTensors, tensors as tensorsIn } from '../core/tree.js';
import type { Graph, Value } from './graph.js';
import type { GuardCollector } from './guard-collector.js';
import { ambientKey } from './guards.js';
import { listOf, sameList, Walk } from './object-walk.js';
import { Tracer } from './tracer.js';

type AnyFunction = (...args: unknown[]) => unknown;

/** The result of a capture. */
export interface Capture {
  readonly graph: Graph;
  /** Builds the function's result from the graph's outputs. */
  readonly rebuild: (outputs: readonly Tensor[], inputs: readonly Tensor[]) => unknown;
}

/** The tracer of the capture in progress. */
let current: Tracer | null = null;

/** Whether a capture is in progress. */
export function isCompiling(): boolean {
  return current !== null;
}

/** Inside a capture, ends it: see {@link Tracer.unsupported}. */
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
): Capture {
  const inputs = tensorsIn(args);
  const before = current;
  try {
    const traced = trace(inputs, guards, (fakes, tracer) => {
      current = tracer;
      let next = 0;
      const given = mapTensors(() => fakes[next++], args) as unknown[];
      const state = listOf((walk) => walk.value(given), false);
      const result = fn(...given);
      if (!sameList(state, (walk) => walk.value(given), false))
        tracer.unsupported('an argument that is not a tensor was changed');
      checkResult(result, tracer);
      const { graph } = tracer;
      graph.outputs = tensorsIn(result).map((t) => tracer.valueOf(tracer.fakeOf(t)));
      return { graph, rebuild: rebuilder(result, graph) };
    });
    const changed = guards.changed();
    if (changed === undefined) return traced;
    throw new CompileError(
      `compile: the function changes ${changed} when it runs. A graph cannot repeat that: ` +
        'keep such state in a tensor, or leave out fullgraph to run the function uncompiled.',
      { changed },
    );
  } finally {
    current = before;
  }
}

/**
 * Refuses results whose tensors {@link tensorsIn} does not find: it looks in arrays, objects and
 * maps.
 */
function checkResult(result: unknown, tracer: Tracer): void {
  if (result instanceof Promise || Object.prototype.toString.call(result) === '[object Generator]')
    tracer.unsupported(
      'the function returned before its end, as asynchronous ones and generators do,',
    );
  const found = new Set(tensorsIn(result));
  new Walk((item) => {
    if (!(item instanceof Tensor) || !item.isFake) return true;
    if (!found.has(item))
      tracer.unsupported('a result was returned inside a Set or an instance of a class');
    if (item.constructor !== Tensor) tracer.unsupported(`${kindOf(item)} was created`);
    return true;
  }, false).value(result);
}

/** Puts the outputs into the shape of the result. An output that is an input is the same object. */
function rebuilder(result: unknown, graph: Graph): Capture['rebuild'] {
  const placeholders = graph.nodes.filter((n) => n.kind === 'placeholder');
  const inputOf = (value: Value): number =>
    'node' in value ? placeholders.indexOf(value.node) : -1;
  const aliases = graph.outputs.map((value) =>
    'node' in value && value.node.kind === 'call' && value.node.into
      ? inputOf(value.node.into)
      : inputOf(value),
  );
  return (outputs, inputs) => {
    let next = 0;
    const output = (): Tensor | undefined => {
      const i = next++;
      const alias = aliases[i] as number;
      return alias >= 0 ? inputs[alias] : outputs[i];
    };
    return mapTensors(output, result);
  };
}

/** The backend that gives everything below autograd to the tracer. */
function tracingBackend(tracer: Tracer, guards: GuardCollector): Backend {
  const { values, effects, observer } = layers.backend;
  return {
    run: (op, given, params, into) => tracer.run(op, given, params, into),
    values: tracedValues(tracer, values),
    effects: tracedEffects(tracer, effects),
    capture: {
      unsupported: (what) => tracer.unsupported(what),
      draws: (generator, source) => tracer.draws(generator, source),
      readsGrad: (t) => tracer.readsGrad(t),
      usesModule: (module) => guards.addModule(module),
    },
    observer,
  };
}

/** Value access in a capture: new values become constants, reading a value ends the graph. */
function tracedValues(tracer: Tracer, outer: ValueAccess): ValueAccess {
  const noValue = (t: Tensor): never =>
    tracer.unsupported(`a value of a tensor, ${t.dtype.name}[${t.shape.join(', ')}], was read`);
  return {
    fromRaw: (...raw) => tracer.freshCopy(keep(outer.fromRaw(...raw))),
    adopt: () => tracer.unsupported('an array was adopted as a tensor'),
    readSync: noValue,
    read: noValue,
    readElement: noValue,
  };
}

/** Effects that a graph repeats on the real tensors, by the backend in place at that time. */
function tracedEffects(tracer: Tracer, outer: StorageEffects): StorageEffects {
  return {
    swap(target, source, counts) {
      const [fake, other] = [tracer.fakeOf(target), tracer.fakeOf(source)];
      tracer.effect('set_', [fake, other], (real, next) =>
        layers.backend.effects.swap(real, next, counts),
      );
      tracer.leavesStorage(fake);
      outer.swap(fake, other, counts);
    },
    resize(storage, bytes) {
      tracer.effect(
        `resize_${bytes}`,
        [tracer.tensorOn(storage)],
        (t) => void t.untypedStorage().resize_(bytes),
      );
      storage.nbytes = bytes;
    },
    setVersion(t, version) {
      tracer.effect('setVersion', [t], (real) => layers.backend.effects.setVersion(real, version));
      t.sharedVersion().value = version;
    },
    keepVersion(t) {
      const captured = t.currentVersion;
      let version = 0;
      tracer.effect('keepVersion', [t], (real) => {
        version = real.currentVersion;
      });
      return () => {
        tracer.effect('restoreVersion', [t], (real) =>
          layers.backend.effects.setVersion(real, version),
        );
        t.sharedVersion().value = captured;
      };
    },
  };
}

/**
 * Runs `fn` on fake tensors for `inputs` and records its ops and effects in the tracer's graph.
 * @throws CompileError if it has an effect that a graph cannot repeat
 */
function trace<T>(
  inputs: readonly Tensor[],
  guards: GuardCollector,
  fn: (fakes: readonly Tensor[], tracer: Tracer) => T,
): T {
  const tracer = new Tracer(guards);
  const [mode, dtype, device, modes] = [
    gradMode(),
    getDefaultDtype(),
    getDefaultDevice(),
    ambientKey(),
  ];
  const backend = swapBackend(tracingBackend(tracer, guards));
  try {
    const result = fn(
      inputs.map((t, i) => tracer.placeholder(t, i)),
      tracer,
    );
    if (ambientKey() !== modes) tracer.unsupported('the grad mode or a default was left changed');
    if (tracer.broken !== null) throw tracer.broken;
    return result;
  } catch (error) {
    throw tracer.broken ?? error;
  } finally {
    swapBackend(backend);
    tracer.restore();
    setGradMode(mode);
    setDefaultDtype(dtype);
    setDefaultDevice(device);
  }
}
