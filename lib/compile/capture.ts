/** One capture of a function: its graph, its guard, and how its result is put together again. */
import { CompileError } from '../core/errors.js';
import { kindOf } from '../core/options.js';
import { Tensor } from '../core/tensor.js';
import type { Graph, Value } from './graph.js';
import type { Watcher } from './guard-collector.js';
import { listOf, sameList, Walk } from './object-walk.js';
import { mapTensors, tensorsIn } from './pytree.js';
import { trace } from './trace.js';
import type { Tracer } from './tracer.js';

type AnyFunction = (...args: unknown[]) => unknown;

/** What a capture gives. */
export interface Capture {
  readonly graph: Graph;
  /** Builds the function's result from the graph's outputs. */
  readonly rebuild: (outputs: readonly Tensor[], inputs: readonly Tensor[]) => unknown;
}

/** The tracer of the capture that runs now. */
let current: Tracer | null = null;

/** Whether a function is being captured now. */
export function isCompiling(): boolean {
  return current !== null;
}

/** Inside a capture, ends it: see {@link Tracer.unsupported}. */
export function refuse(what: string): void {
  current?.unsupported(what);
}

/**
 * Captures `fn` for these arguments. @throws CompileError where it does what a graph cannot repeat
 */
export function capture(fn: AnyFunction, args: readonly unknown[], watcher: Watcher): Capture {
  const inputs = tensorsIn(args);
  const before = current;
  try {
    const traced = trace(inputs, watcher, (fakes, tracer) => {
      current = tracer;
      let next = 0;
      const given = mapTensors(args, () => fakes[next++]) as unknown[];
      const state = listOf((walk) => walk.value(given), false);
      const result = fn(...given);
      if (!sameList(state, (walk) => walk.value(given), false))
        tracer.unsupported('an argument that is no tensor was changed');
      checkResult(result, tracer);
      const { graph } = tracer;
      graph.outputs = tensorsIn(result).map((t) => tracer.valueOf(tracer.fakeOf(t)));
      return { graph, rebuild: rebuilder(result, graph) };
    });
    const changed = watcher.changed();
    if (changed === undefined) return traced;
    throw new CompileError(
      `compile: the function changes ${changed} when it runs. A graph cannot repeat that: keep such state in a tensor, or leave out fullgraph and the function runs as it is.`,
      { changed },
    );
  } finally {
    current = before;
  }
}

/** Results hold tensors in arrays and plain objects, where they are found again. */
function checkResult(result: unknown, tracer: Tracer): void {
  if (result instanceof Promise || Object.prototype.toString.call(result) === '[object Generator]')
    tracer.unsupported(
      'the function returned before its end, as asynchronous ones and generators do,',
    );
  const found = new Set(tensorsIn(result));
  new Walk((item) => {
    if (!(item instanceof Tensor) || !item.isFake) return true;
    if (!found.has(item))
      tracer.unsupported('a result was returned inside a Map, a Set or an instance of a class');
    if (item.constructor !== Tensor) tracer.unsupported(`${kindOf(item)} was made`);
    return true;
  }, false).value(result);
}

/** An output that is an input comes back as the very same object. */
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
    return mapTensors(result, () => {
      const i = next++;
      const alias = aliases[i] as number;
      return alias >= 0 ? inputs[alias] : outputs[i];
    });
  };
}
