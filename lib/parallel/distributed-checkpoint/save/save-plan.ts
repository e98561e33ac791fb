/** Who writes what: each part of a tensor once, spread over the ranks that hold it by size. */
import { numelOf } from '../../../core/shape.js';
import { CheckpointError, type DTypeName, dtypeByName } from '../../../index.js';
import type { Region } from '../regions.js';
import { checkReplicas } from './replicas.js';

/** A part of a tensor that a rank holds. */
export interface HeldPart extends Region {
  readonly path: string;
  readonly dtype: DTypeName;
  /** Of the whole tensor. */
  readonly shape: readonly number[];
  /** Of a plain tensor of several ranks, to compare it. */
  readonly checksum?: number;
  /** Whether the ranks may hold other values: then the first one writes all. */
  readonly mayDiffer?: boolean;
}

/** A part that a rank writes. */
export interface PlannedChunk extends HeldPart {
  readonly rank: number;
  /** Its name in the file of that rank. */
  readonly name: string;
}

const bytesOf = ({ dtype, sizes }: HeldPart): number =>
  numelOf(sizes) * (dtypeByName(dtype)?.itemsize ?? 1);

/** A part, and all ranks that hold it. */
interface SharedPart {
  readonly part: HeldPart;
  readonly ranks: number[];
}

/**
 * Decides for all parts; all ranks decide alike. @throws CheckpointError if ranks hold tensors of
 * one path that differ
 */
export function planChunks(op: string, held: readonly (readonly HeldPart[])[]): PlannedChunk[] {
  const total = held.map(() => 0);
  const add = (rank: number, part: HeldPart): PlannedChunk => {
    total[rank] = (total[rank] as number) + bytesOf(part);
    return { ...part, rank, name: nameOf(part) };
  };
  const shared = sharedParts(op, held);
  checkReplicas(op, held);
  const all = shared.reduce((sum, { part }) => sum + bytesOf(part), 0);
  // What one rank alone holds is written by it; the rest fills up, the largest first.
  const planned = shared
    .filter(({ ranks }) => ranks.length === 1)
    .map(({ part, ranks }) => add(ranks[0] as number, part));
  const rest = shared
    .filter(({ ranks }) => ranks.length > 1)
    .flatMap((each) => dividedRows(each, all / held.length))
    .sort((a, b) => bytesOf(b.part) - bytesOf(a.part));
  for (const { part, ranks } of rest) {
    const least = ranks.reduce((best, rank) =>
      (total[rank] as number) < (total[best] as number) ? rank : best,
    );
    planned.push(add(least, part));
  }
  return planned;
}

/** Divides a part that is larger than half of what a rank should write. */
function dividedRows({ part, ranks }: SharedPart, perRank: number): SharedPart[] {
  const { sizes, offsets } = part;
  const rows = sizes[0] ?? 1;
  const count = Math.min(rows, Math.ceil(bytesOf(part) / Math.max(1, perRank / 2)));
  if (count <= 1) return [{ part, ranks }];
  return Array.from({ length: count }, (_, i) => {
    const begin = Math.floor((i * rows) / count);
    const end = Math.floor(((i + 1) * rows) / count);
    const chunk = {
      ...part,
      offsets: [(offsets[0] as number) + begin, ...offsets.slice(1)],
      sizes: [end - begin, ...sizes.slice(1)],
    };
    return { part: chunk, ranks };
  });
}

function sharedParts(op: string, held: readonly (readonly HeldPart[])[]): SharedPart[] {
  const first = new Map<string, { part: HeldPart; rank: number }>();
  const byRegion = new Map<string, SharedPart>();
  held.forEach((parts, rank) => {
    for (const part of parts) {
      const known = first.get(part.path);
      if (known === undefined) first.set(part.path, { part, rank });
      else checkAlike(op, known, { part, rank });
      if (numelOf(part.sizes) === 0) continue;
      const key = `${part.path} ${part.offsets} ${part.sizes}`;
      const shared = byRegion.get(key);
      if (shared === undefined) byRegion.set(key, { part, ranks: [rank] });
      else if (part.mayDiffer !== true) shared.ranks.push(rank);
    }
  });
  return [...byRegion.values()];
}

function checkAlike(
  op: string,
  a: { part: HeldPart; rank: number },
  b: { part: HeldPart; rank: number },
): void {
  const describe = ({ dtype, shape }: HeldPart): string => `${dtype}[${shape.join(', ')}]`;
  const [one, other] = [describe(a.part), describe(b.part)];
  if (one === other) return;
  throw new CheckpointError(
    `${op}: "${a.part.path}" is ${one} on rank ${a.rank} and ${other} on rank ${b.rank}; the ` +
      'ranks must save tensors of one model',
    { op, path: a.part.path, ranks: [a.rank, b.rank] },
  );
}

/** `weight`, or `weight[2:4, 0:8]` for a part. */
function nameOf({ path, shape, offsets, sizes }: HeldPart): string {
  if (sizes.every((size, dim) => size === shape[dim])) return path;
  const ranges = sizes.map((size, dim) => `${offsets[dim]}:${(offsets[dim] as number) + size}`);
  return `${path}[${ranges.join(', ')}]`;
}
