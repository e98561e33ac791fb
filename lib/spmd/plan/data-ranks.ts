/** The ranks of a plan among which parameters are sharded, and which groups they communicate in. */
import type { Node } from '../../compile/graph/node.js';
import type { DType } from '../../core/dtype.js';

/** The ranks that share the parameters of fully sharded data parallelism, and how they do. */
export interface DataRanks {
  readonly ranks: number;
  /** What their communication counts along. */
  readonly along: string;
  /** The ranks of the last mesh dim, which shares parameters beside them; 1 without it. */
  readonly tensorRanks: number;
  readonly tensorAlong: string;
  /** The dtypes in which parameters are gathered and gradients reduced; null for their own. */
  readonly paramDtype: DType | null;
  readonly reduceDtype: DType | null;
}

/**
 * Between which ranks a collective communicates: those with other data, those of the last mesh dim,
 * or both. The last mesh dim numbers the ranks fastest.
 */
export function scopeOf(node: Node, { tensorRanks }: DataRanks): 'data' | 'tensor' | 'both' {
  const { ranks = [] } = (node.params as { group?: { ranks?: readonly number[] } }).group ?? {};
  const [first = 0] = ranks;
  if (ranks.every((rank) => rank % tensorRanks === first % tensorRanks)) return 'data';
  const block = Math.floor(first / tensorRanks);
  return ranks.every((rank) => Math.floor(rank / tensorRanks) === block) ? 'tensor' : 'both';
}
