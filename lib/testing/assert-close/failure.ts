/** The error of an assertion about tensors, and what it needs to know. */
import { AssertionError } from 'node:assert';
import { findContext } from '../../distributed/process-group/rank-context.js';

/** What `assertClose` was asked. */
export interface Comparison {
  /** The public function. */
  readonly op: string;
  /** The function whose callers the stack shows; null for an asynchronous one. */
  readonly below: ((...args: never[]) => unknown) | null;
  readonly message: string | null;
  /** Null for those of the dtypes. */
  readonly tolerances: { readonly rtol: number; readonly atol: number } | null;
  readonly equalNan: boolean;
  readonly checkDtype: boolean;
  readonly checkDevice: boolean;
  readonly checkStride: boolean;
}

/** `path`: where in the compared values it is, such as `.layers[0]`; empty for these themselves. */
export function failure(
  { op, below, message }: Comparison,
  path: string,
  text: string,
  [actual, expected]: readonly [unknown, unknown],
): AssertionError {
  const where = `${path === '' ? '' : ` at ${path}`}${rankInWords()}`;
  return new AssertionError({
    message: `${message === null ? '' : `${message}\n`}${op}${where}: ${text}`,
    actual,
    expected,
    ...(below === null ? {} : { stackStartFn: below }),
  });
}

function rankInWords(): string {
  const context = findContext();
  if (context === null || context.worldSize === 1) return '';
  return ` on rank ${context.rank} of ${context.worldSize}`;
}
