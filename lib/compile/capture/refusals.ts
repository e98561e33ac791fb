/** The errors that end captures. */
import { CompileError } from '../../core/errors.js';
import type { Tensor } from '../../core/tensor.js';

/** The error of a capture whose signal is aborted. */
export function cancelled({ reason }: AbortSignal): CompileError {
  return new CompileError(
    'compile: the signal was aborted, so the function was not captured ' +
      `(${reason instanceof Error ? reason.message : String(reason)}).`,
    { cancelled: true },
    { cause: reason },
  );
}

/**
 * Whether the function suspends: a capture would end at its first `await`, and the rest of it would
 * run later, on tensors without values.
 */
export const suspends = (fn: unknown): boolean => suspending.has(prototypeOf(fn));

/** Whether the function, or the `forward` of a module, is asynchronous. */
export const isAsynchronous = (fn: unknown): boolean => prototypeOf(fn) === asynchronous;

function prototypeOf(fn: unknown): unknown {
  const { forward = fn } = fn as { forward?: unknown };
  return typeof forward === 'function' ? Object.getPrototypeOf(forward) : null;
}

const asynchronous: unknown = Object.getPrototypeOf(async () => {});

const suspending = new Set<unknown>(
  [async () => {}, function* () {}, async function* () {}].map((fn) => Object.getPrototypeOf(fn)),
);

/** What helps wherever a function breaks. */
export const WITHOUT_FULLGRAPH =
  'leave out fullgraph: then its JavaScript runs at every call, and its ops as several graphs.';

/** What helps where a value was read. */
export const INSTEAD_OF_VALUES = 'compute with tensors, as where() does, read the value';

/** What helps where an iterator would go on from call to call. */
export const INSTEAD_OF_STEPS = 'pass the value, take the step';

/** What ends a graph where a value of the tensor is read. */
export const readReason = ({ dtype, sizes: shape }: Tensor): string =>
  `a value of a tensor, ${dtype.name}[${shape.join(', ')}], was read`;

/** The error of a function that suspends. */
export function suspendedError(name: string): CompileError {
  const what = `${name} is asynchronous or a generator`;
  return new CompileError(
    `compile: ${what}, so it returns before it has computed its result. Compile the functions ` +
      `and modules that it calls, or ${WITHOUT_FULLGRAPH}`,
    { what, at: '', path: '' },
  );
}

/**
 * The error of what a graph cannot repeat, at a call site and in a module. `stepCaller`: the call
 * that captures a whole step, and runs nothing uncompiled. `instead`: what to do outside of the
 * function.
 */
export function refusal(
  what: string,
  at: string,
  path: string,
  stepCaller: string | null = null,
  instead = 'do it',
): CompileError {
  const [op, captured, end] =
    stepCaller === null
      ? ['compile', 'the function', `the compiled function, or ${WITHOUT_FULLGRAPH}`]
      : [stepCaller, 'the step', 'the step.'];
  return new CompileError(
    `${op}: ${what} while ${captured} was captured, at ${at || 'an unknown place'}. A graph ` +
      `cannot repeat that: ${instead} outside of ${end}`,
    { what, at, path },
  );
}

/** Ends a capture at a backward pass, or at what else a whole step can contain. */
export class StepRefusal extends CompileError {}

/** The error of a function that is no whole step either, because of `why`. */
export function noWholeStep({ details }: StepRefusal, why: string): CompileError {
  const { what, at, path } = details as { what: string; at: string; path: string };
  return refusal(`${what}, and the function is no graph of a whole step: ${why},`, at, path);
}

/** The error of a call whose tensors are not found. */
export function cyclicError(name: string): CompileError {
  const what = `${name} was called with an argument that contains itself`;
  return new CompileError(
    `compile: ${what}, which is no tree of inputs. Pass its tensors as a list, or ` +
      WITHOUT_FULLGRAPH,
    { what, at: '', path: '' },
  );
}

/** Why the first call of a function runs uncompiled. */
export const probedReason = (path: string | null): string =>
  `the function seems to assign to ${path}, so its first call runs uncompiled, to see that`;

/** Why a function that was seen to assign to a variable runs uncompiled. */
export const assignsError = (path: string): CompileError =>
  new CompileError(
    `compile: the function assigns to ${path}, a variable outside of it, when it runs. A graph ` +
      `cannot repeat that: keep such state in a tensor, or ${WITHOUT_FULLGRAPH}`,
    { changed: path },
  );

/** Nothing can put the variable back, so the function cannot run again for this call. */
export const assignedError = (path: string): CompileError =>
  new CompileError(
    `compile: the function assigned to ${path}, a variable outside of it, while it was captured, ` +
      'and nothing can undo that. Keep such state in an object or a tensor, or exclude what ' +
      'assigns to it by compiler.disable',
    { changed: path },
  );
