/** The plain value of a checkpoint that a rank gets. */

import { decodeValue, RANDOM } from '../../../checkpoint/state/json-values.js';
import type { RngState } from '../../../index.js';
import type { SavedValue } from '../checkpoint-index.js';

/** Distance of the seeds of ranks that share a saved state: a large prime. */
const SEED_STEP = 2_147_483_659;
const SEEDS = 2 ** 52;

/**
 * A value of all ranks, or that of this rank. Random numbers of ranks that no rank saved continue
 * from the state of another one with a seed of their own.
 */
export function valueFor(saved: SavedValue, { rank }: { readonly rank: number }): unknown {
  if ('value' in saved) return valueOf(saved.value);
  const { byRank } = saved;
  const value = valueOf(byRank[rank % byRank.length]);
  const round = Math.floor(rank / byRank.length);
  if (round === 0) return value;
  const state = value as RngState;
  return { ...state, seed: (state.seed + round * SEED_STEP) % SEEDS };
}

/** The value, also if it is marked as the state of random numbers. */
function valueOf(json: unknown): unknown {
  const isMarked = typeof json === 'object' && json !== null && Object.keys(json).join() === RANDOM;
  return decodeValue(isMarked ? (json as { [RANDOM]: unknown })[RANDOM] : json);
}
