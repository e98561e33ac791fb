/**
 * On whose behalf a value is read: an op that looks at its input names itself in the error where
 * waiting is impossible.
 */

/** The op, or null for reads that the program asks for. @internal */
export const waiting: { op: string | null } = { op: null };

/**
 * Runs `fn`, whose reads are those of `op`; of ops that call each other, the outermost counts.
 * @internal
 */
export function waitingFor<T>(op: string, fn: () => T): T {
  const before = waiting.op;
  waiting.op = before ?? op;
  try {
    return fn();
  } finally {
    waiting.op = before;
  }
}
