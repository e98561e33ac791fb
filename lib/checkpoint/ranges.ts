/**
 * Parts of stored tensors: which runs of bytes hold a hyper-rectangle, and how few reads get them.
 * A shard of a large tensor costs its own bytes and little more.
 */
import type { FileHandle } from 'node:fs/promises';
import { IndexError, ShapeError } from '../core/errors.js';
import { unexpected } from '../core/options.js';
import { formatShape, numelOf, type Shape } from '../core/shape.js';
import { readFully } from './chunks.js';

/** The indices `start` to `end - 1` of a dim. */
export type IndexRange = readonly [start: number, end: number];

/** A hyper-rectangle of a tensor. */
export interface Selection {
  /** The first index of each dim. */
  readonly starts: Shape;
  /** The number of indices of each dim. */
  readonly sizes: Shape;
}

/** Reads that are under way at a time. */
const MOST_READS = 32;
/**
 * Maximal bytes of gaps between runs that are read as well, so that small tensors take one read.
 */
const MOST_GAP_BYTES = 2048;
/** Maximal bytes of a read that includes gaps. */
const MOST_GROUP_BYTES = 4 * 2 ** 20;

/**
 * Checks ranges: one for each dim, `null` for all of a dim; dims without a range are read whole.
 *
 * @throws ArgumentError for what are no ranges; ShapeError for too many; IndexError for indices
 * that the tensor does not have
 */
export function selectionOf(op: string, ranges: unknown, shape: Shape): Selection {
  if (!Array.isArray(ranges))
    throw unexpected(op, 'ranges', 'a list of [start, end] or null, one for each dim', ranges);
  if (ranges.length > shape.length)
    throw new ShapeError(
      `${op}: expected at most ${shape.length} ranges for a tensor of shape ` +
        `${formatShape(shape)}, got ${ranges.length}`,
      { op, shape, ranges: ranges.length },
    );
  const starts: number[] = [];
  const sizes: number[] = [];
  shape.forEach((size, dim) => {
    const [start, end] = checkRange(op, ranges[dim] ?? [0, size], dim, size);
    starts.push(start);
    sizes.push(end - start);
  });
  return { starts, sizes };
}

function checkRange(op: string, range: unknown, dim: number, size: number): IndexRange {
  const isPair =
    Array.isArray(range) && range.length === 2 && range.every((n) => Number.isSafeInteger(n));
  if (!isPair) throw unexpected(op, `ranges[${dim}]`, 'a pair of whole numbers or null', range);
  const [start, end] = range as [number, number];
  if (start < 0 || end < start || end > size)
    throw new IndexError(
      `${op}: expected ranges[${dim}] to be within [0, ${size}], got [${start}, ${end}]`,
      { op, dim, size, range: [start, end] },
    );
  return [start, end];
}

/** One read: a number of runs of equal length, and where they belong. */
interface Read {
  /** The first byte, from the start of the tensor. */
  readonly begin: number;
  /** One past the last byte. */
  end: number;
  /** Where each run begins, from the start of the tensor. */
  readonly runs: number[];
  /** The first byte of the destination. */
  readonly to: number;
}

/** The bytes of one run: the dims from the last that is not whole on. */
function runBytesOf(shape: Shape, sizes: Shape, itemsize: number): [outer: number, bytes: number] {
  let dim = shape.length - 1;
  while (dim > 0 && sizes[dim] === shape[dim]) dim--;
  const outer = Math.max(0, dim);
  return [outer, numelOf(sizes.slice(outer)) * itemsize];
}

/** Where each run begins, in bytes from the start of the tensor. */
function* runStarts(
  shape: Shape,
  { starts, sizes }: Selection,
  outer: number,
  itemsize: number,
): Generator<number, void> {
  const strides = shape.map((_, dim) => numelOf(shape.slice(dim + 1)) * itemsize);
  const index = new Array<number>(outer).fill(0);
  let at = starts.reduce((sum, start, dim) => sum + start * (strides[dim] as number), 0);
  for (;;) {
    yield at;
    let dim = outer - 1;
    for (; dim >= 0; dim--) {
      const [size, stride] = [sizes[dim] as number, strides[dim] as number];
      at += stride;
      if (++(index[dim] as number) < size) break;
      at -= size * stride;
      index[dim] = 0;
    }
    if (dim < 0) return;
  }
}

/** The runs of a selection that has elements: their length, and where they begin. @internal */
export function runsOf(
  shape: Shape,
  selection: Selection,
  itemsize: number,
): { starts: Iterable<number>; first: number; last: number; runBytes: number } {
  const { starts, sizes } = selection;
  const [outer, runBytes] = runBytesOf(shape, sizes, itemsize);
  const at = (index: (dim: number) => number): number =>
    shape.reduce((sum, size, dim) => sum * size + index(dim), 0) * itemsize;
  return {
    starts: runStarts(shape, selection, outer, itemsize),
    first: at((dim) => starts[dim] as number),
    last: at((dim) => (starts[dim] as number) + (dim < outer ? (sizes[dim] as number) - 1 : 0)),
    runBytes,
  };
}

/** Options of {@link readSelection}. */
export interface ReadOptions {
  /** Bytes between runs that a read may include. */
  readonly gapBytes?: number;
}

/** The reads that together get a selection, in order. Small gaps are read as well. @internal */
export function* readsOf(
  shape: Shape,
  selection: Selection,
  itemsize: number,
  { gapBytes = MOST_GAP_BYTES }: ReadOptions = {},
): Generator<Read, void> {
  if (selection.sizes.includes(0)) return;
  const [outer, bytes] = runBytesOf(shape, selection.sizes, itemsize);
  let read: Read | null = null;
  let to = 0;
  let gaps = 0;
  for (const start of runStarts(shape, selection, outer, itemsize)) {
    const end = start + bytes;
    const gap: number = start - (read?.end ?? 0);
    if (
      read !== null &&
      gaps + gap <= gapBytes &&
      (gap === 0 || end - read.begin <= MOST_GROUP_BYTES)
    ) {
      gaps += gap;
      read.end = end;
      read.runs.push(start);
    } else {
      if (read !== null) yield read;
      read = { begin: start, end, runs: [start], to };
    }
    to += bytes;
  }
  if (read !== null) yield read;
}

/**
 * Reads a selection of a tensor that begins at byte `at` of a file into `bytes`, in row-major
 * order.
 *
 * @throws CheckpointError if the file is too short or cannot be read
 */
export async function readSelection(
  file: Pick<FileHandle, 'read'>,
  path: string,
  at: number,
  { shape, itemsize, selection }: { shape: Shape; itemsize: number; selection: Selection },
  bytes: Uint8Array,
  options: ReadOptions = {},
): Promise<void> {
  const reads = readsOf(shape, selection, itemsize, options);
  const failures: unknown[] = [];
  const worker = async (): Promise<void> => {
    for (const read of reads) {
      await readRuns(file, path, at, read, bytes).catch((error) => failures.push(error));
      if (failures.length > 0) return;
    }
  };
  await Promise.all(Array.from({ length: MOST_READS }, worker));
  if (failures.length > 0) throw failures[0];
}

async function readRuns(
  file: Pick<FileHandle, 'read'>,
  path: string,
  at: number,
  { begin, end, runs, to }: Read,
  bytes: Uint8Array,
): Promise<void> {
  if (runs.length === 1) {
    await readFully(file, path, at + begin, bytes.subarray(to, to + end - begin));
    return;
  }
  const gathered = new Uint8Array(end - begin);
  await readFully(file, path, at + begin, gathered);
  const length = end - (runs.at(-1) as number);
  runs.forEach((start, i) => {
    bytes.set(gathered.subarray(start - begin, start - begin + length), to + i * length);
  });
}
