/** What is made before a capture, because its guards compare it and every run goes on with it. */
import { callContext } from '../../core/call-context.js';
import { CompileError } from '../../core/errors.js';
import { layers } from '../../core/hooks.js';
import { checkFunction } from '../../core/options.js';
import { PREPARE_CAPTURE, type PreparesCapture } from '../../core/prepare-capture.js';
import { heldOf } from '../../core/sharding.js';
import type { Tensor } from '../../core/tensor.js';
import { Walk } from '../guards/object-walk.js';
import type { Recorder } from './recorder.js';

/** Ends a capture, which begins anew when `prepare` has run. */
export class UnpreparedError extends CompileError {
  readonly prepare: () => void;

  constructor(prepare: () => void) {
    super('compile: something was made for the first time while a function was captured.');
    this.prepare = prepare;
  }
}

/**
 * Ends a capture until `prepare` has run.
 *
 * @throws CompileError in a module that the captured function makes: it makes another one each time
 */
export function beginAnewAfter(recorder: Recorder, prepare: () => void): never {
  const module = callContext.modules.at(-1) as Partial<HoldsTensors> | undefined;
  const tensors = [...(module?.parameters?.() ?? []), ...(module?.buffers?.() ?? [])];
  if (tensors.some((t) => recorder.isOwn(heldOf(t))))
    recorder.unsupported(
      'a module that the function makes made something at its first call',
      'make the module',
    );
  throw (recorder.broken ??= new UnpreparedError(prepare));
}

interface HoldsTensors {
  parameters(): Iterable<Tensor>;
  buffers(): Iterable<Tensor>;
}

/** Functions that may end one capture after the other. */
const MAX_PREPARATIONS = 1000;

/**
 * Captures by `attempt`, after the arguments have made what they else make at their first use, such
 * as the states of optimizers. Begins anew where the program asks for it.
 */
export function whenPrepared<T>(args: readonly unknown[], attempt: () => T): T {
  prepare(args);
  for (let count = 1; ; count++) {
    try {
      return attempt();
    } catch (error) {
      if (!(error instanceof UnpreparedError)) throw error;
      if (count === MAX_PREPARATIONS) throw endlessError();
      error.prepare();
    }
  }
}

function endlessError(): CompileError {
  return new CompileError(
    `compiler.beforeCapture: expected calls of it only until its function has run, got one in each ` +
      `of ${MAX_PREPARATIONS} captures, one after the other. Keep what the function makes, and call ` +
      'beforeCapture only where that is missing.',
  );
}

function prepare(args: readonly unknown[]): void {
  new Walk((item) => {
    if (typeof item === 'object' && item !== null && PREPARE_CAPTURE in item)
      (item as PreparesCapture)[PREPARE_CAPTURE]();
    return true;
  }).value([...args]);
}

/**
 * Runs `fn`, which makes what a module makes once, at its first call: memory, groups of ranks. No
 * graph can contain that. In a capture it runs outside of it, on tensors with their values, and the
 * capture begins anew. So call it only until it has run.
 *
 * @throws CompileError if a capture began anew 1000 times
 * @example
 * let table: Tensor | null = null;
 * const lookUp = compile((x: Tensor) => {
 *   if (table === null) compiler.beforeCapture(() => { table = ones([4]); });
 *   return x.mul(table as unknown as Tensor);
 * });
 * lookUp(ones([4])).sum(); // 4
 */
export function beforeCapture(fn: () => void): void {
  checkFunction('beforeCapture', 'fn', fn);
  const { capture } = layers.backend;
  if (capture === null) fn();
  else capture.beginsAnewAfter(fn);
}
