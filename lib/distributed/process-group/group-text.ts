/** How a process group prints. */
import type { GroupPlan } from '../engines/engine.js';

/** At most this many ranks are printed. */
const SHOWN_RANKS = 16;

/** `ProcessGroup(tp[0,2]: rank 1 of ranks 0, 2)` @internal */
export function groupText({ name, ranks, rank }: GroupPlan, hasEnded: boolean): string {
  const shown =
    ranks.length <= SHOWN_RANKS
      ? ranks.join(', ')
      : `${ranks.slice(0, SHOWN_RANKS).join(', ')}, … (${ranks.length})`;
  const place = rank < 0 ? 'not a member, of' : `rank ${rank} of`;
  return `ProcessGroup(${name}: ${place} ranks ${shown}${hasEnded ? ', ended' : ''})`;
}
