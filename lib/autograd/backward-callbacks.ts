/** Functions that a running backward pass calls at its end, or when it fails. */
import { AutogradError } from '../core/errors.js';
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
  const callbacks: Callback[] = [];
  running.push(callbacks);
  try {
    pass();
    for (const { fn } of callbacks) outsideScopes(fn);
  } catch (error) {
    for (const { onError } of callbacks) if (onError) outsideScopes(() => onError(error));
    throw error;
  } finally {
    running.pop();
  }
}
