/** Gives the groups of a `local` rank the failure of another rank. */
import type { NativeReason } from '../../native/failure.js';
import type { RankContext } from '../process-group/rank-context.js';

/** For a group that the failed rank is not in. */
const fromOutside = (reason: NativeReason): NativeReason => ({
  ...reason,
  message: `${reason.message} (which is not in this group)`,
  ranks: [],
  calls: [],
});

/** Aborts the groups of a rank, for a failure of the rank `failed`. */
export function abortGroups(
  context: RankContext,
  reason: NativeReason,
  failed: number | null,
): void {
  for (const group of context.groups) {
    if (failed === context.rank) quietly(() => group.beSeen());
    const isStranger = failed !== null && !group.ranks.includes(failed);
    group.abort(isStranger ? fromOutside(reason) : reason, failed);
  }
}

/** For cleanups whose failure must not hide the one that they follow. */
export function quietly(work: () => void): void {
  try {
    work();
  } catch {}
}
