/**
 * What `compile` makes of functions that use a feature: one graph; or frames, that is graphs of the
 * modules that the function calls; and with fullgraph an error.
 */
import { observeCaptures } from '../../lib/compile/capture-record.js';
import { compile, nn, Tensor } from '../../lib/index.js';

/** Uses the feature. The module is called after it. */
export type Body = (x: Tensor) => unknown;

/** Makes the body, with new state. */
export type Program = () => Body;

export interface Feature {
  readonly what: string;
  readonly programs: readonly Program[];
  /** What to write where it is refused. */
  readonly instead?: string;
  /** Whether the results have no values to compare: they are those of a world without peers. */
  readonly isFake?: boolean;
}

const steps = new WeakSet<Program>();

/** Marks a program that is a whole step: no module is called after it. */
export function wholeStep(program: Program): Program {
  steps.add(program);
  return program;
}

/** The function of a program: the feature, and a module. */
export function functionOf(program: Program): (x: Tensor) => unknown {
  const body = program();
  if (steps.has(program)) return body;
  const layer = new nn.Linear(2, 2);
  const suspends = /^async |^function\*/.test(body.toString());
  if (suspends) return body;
  return (x) => {
    const result = body(x);
    const next = result instanceof Tensor && result.shape.join() === '2' ? result : x;
    return [result, layer(next.sharding === null ? next : x)];
  };
}

export interface Outcome {
  /** Why it is no graph; null if it is one. */
  readonly refusal: string | null;
  /** Graphs of modules below a function that is no graph. */
  readonly frames: number;
}

let graphs = 0;
let reason: string | null = null;
let isObserving = false;

/** Runs the program compiled, and reports what became of it. */
export function outcomeOf(program: Program, input: () => Tensor): Outcome {
  if (!isObserving)
    observeCaptures(({ graph, refusal }) => {
      if (graph !== null) graphs++;
      else reason ??= refusal?.reason ?? null;
    });
  isObserving = true;
  graphs = 0;
  reason = null;
  const result = compile(functionOf(program))(input());
  if (result instanceof Promise) result.catch(() => {});
  return { refusal: reason, frames: reason === null ? 0 : graphs };
}
