/** The errors that end captures. */
import { CompileError } from '../../core/errors.js';

/** The error of a capture whose signal is aborted. */
export function cancelled({ reason }: AbortSignal): CompileError {
  return new CompileError(
    'compile: the signal was aborted, so the function was not captured ' +
      `(${reason instanceof Error ? reason.message : String(reason)}).`,
    { cancelled: true },
  );
}

/** The error of what a graph cannot repeat, at a call site and in a module. */
export function refusal(what: string, at: string, path: string): CompileError {
  return new CompileError(
    `compile: ${what} while the function was captured, at ${at || 'an unknown place'}. A ` +
      'graph cannot repeat that: do it outside of the compiled function, or leave out ' +
      'fullgraph to run the function uncompiled.',
    { what, at, path },
  );
}
