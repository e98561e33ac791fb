/** Chunks of a dim, as `Shard` divides it among ranks: as `torch.chunk`, with empty chunks. */

/**
 * The number of elements of a chunk of `size` elements; the last chunks may have fewer, or none.
 */
export function chunkSize(size: number, ranks: number): number {
  return Math.ceil(size / ranks);
}

/**
 * The chunk of `size` elements that rank `rank` of `ranks` has. An empty chunk begins at the end.
 */
export function chunkOf(
  size: number,
  ranks: number,
  rank: number,
): { size: number; offset: number } {
  const chunk = chunkSize(size, ranks);
  const offset = Math.min(size, rank * chunk);
  return { size: Math.min(size, offset + chunk) - offset, offset };
}

/** The chunks of all ranks. */
export function chunksOf(size: number, ranks: number): { size: number; offset: number }[] {
  return Array.from({ length: ranks }, (_, rank) => chunkOf(size, ranks, rank));
}
