/** How the rows of a parameter are divided among ranks: as `torch.chunk`, with empty chunks. */

/** Rows of every rank but the last ones, which may have fewer or none. */
export function rowsPerRank(rows: number, ranks: number): number {
  return Math.ceil(rows / ranks);
}

/** The rows of one rank. */
export function rowsOf(
  rows: number,
  ranks: number,
  rank: number,
): { readonly offset: number; readonly size: number } {
  const each = rowsPerRank(rows, ranks);
  const offset = Math.min(rows, each * rank);
  return { offset, size: Math.min(rows, offset + each) - offset };
}
