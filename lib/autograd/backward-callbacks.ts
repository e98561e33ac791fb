/** Functions that a running backward pass calls at its end, or when it fails. */
import { callContext } from '../core/call-context.js';
import { AutogradError } from '../core/errors.js';
import { layers } from '../core/hooks.js';
import { checkFunction } from '../core/options.js';
import { outsideScopes } from '../core/scope-stack.js';
import { reportUseOutsideSteps } from '../core/unrepeatable.js';

interface Callback {
  readonly fn: () => void;
  readonly onError: ((error: unknown) => void) | undefined;
}

/** The callbacks of running passes, the innermost last. */
const running: Callback[][] = [];

/**
 * Runs `fn` at the end of the innermost running backward pass, outside of its scope. If the pass
 * throws, `onError` runs instead, before the caller of backward gets the error.
 *
 * @throws AutogradError outside of a backward pass
 * @see PyTorch `Variable._execution_engine.queue_callback`, which has no `onError`
 */
export function queueCallback(fn: () => void, onError?: (error: unknown) => void): void {
  checkFunction('queueCallback', 'fn', fn);
  if (onError !== undefined) checkFunction('queueCallback', 'onError', onError);
  reportUseOutsideSteps('queueCallback');
  const callbacks = running[running.length - 1];
  if (callbacks === undefined)
    throw new AutogradError(
      'queueCallback: expected a running backward pass, got a call outside of one. ' +
        'Call it from a hook.',
      { op: 'queueCallback' },
    );
  callbacks.push({ fn, onError });
}

/** Runs a backward pass and the callbacks that are queued in it. @internal */
export function withCallbacks(pass: () => void): void {
  const { capture } = layers.backend;
  endingPasses(() => {
    beginPass();
    if (capture === null) pass();
    else capture.runsPass(pass);
    endPass();
  });
}

/** From here on a backward pass runs, until {@link endPass}. @internal */
export function beginPass(): void {
  running.push([]);
}

/** Runs the callbacks of the innermost pass, and ends it. @internal */
export function endPass(): void {
  for (const { fn } of running.at(-1) ?? []) outsideScopes(fn);
  running.pop();
}

/** Runs `fn`. If it throws, the passes that it began end, and the callers know. @internal */
export function endingPasses<T>(fn: () => T): T {
  const outer = running.length;
  try {
    return fn();
  } catch (error) {
    const callbacks = running.slice(outer).reverse().flat();
    for (const { onError } of callbacks) if (onError) outsideScopes(() => onError(error));
    throw error;
  } finally {
    running.length = outer;
  }
}

/** Whether a backward pass runs: its hooks and second runs of checkpoints are in it. */
export const isInBackward = (): boolean => callContext.isBackward;
