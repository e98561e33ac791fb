/** Why a rank ends a group, for the errors of the other ranks. */
import { identityOf, newFailureId } from '../../core/unobserved-failures.js';
import type { NativeReason } from '../../native/failure.js';

/**
 * The reason reports the same failure as its cause. @param cause - a text, or the error that it is
 * the text of @internal
 */
export function abortReason(message: string, cause: unknown = null): NativeReason {
  const { id = newFailureId(), namesCreations = false } = identityOf(cause) ?? {};
  return { message, id, namesCreations, ranks: [], calls: [] };
}
