/** The error of a compiled function that got a freed tensor. */
import { FreedError } from '../core/errors.js';
import { formatShape } from '../core/shape.js';
import { tensors as tensorsIn } from '../core/tree.js';
import { GuardCollector } from './guards/guard-collector.js';

/**
 * The error to throw in place of `error`: one that names the freed argument, if that is the cause.
 */
export function freedArgument(error: unknown, name: string, args: readonly unknown[]): unknown {
  if (!(error instanceof FreedError)) return error;
  const freed = tensorsIn(args).find((t) => t.disposed || t.storage?.handle === 0);
  if (freed === undefined) return error;
  const path = new GuardCollector(args).pathOf(freed);
  const reason = freed.storage?.freedBy ?? 'its memory was never allocated';
  return new FreedError(
    `compile: ${path} of ${name}, ${freed.dtype.name}${formatShape(freed.shape)}, was freed ` +
      `before the call (${reason}). A tensor that must outlive its scope is returned from it, or passed ` +
      'to keep().',
    { op: 'compile', argument: path, reason },
    { cause: error },
  );
}
