/**
 * Reads parts of stored tensors into tensors that are there. Large parts take several bounded
 * reads, small neighbours share one, so that neither memory nor the number of reads grows.
 */
import type { FileHandle } from 'node:fs/promises';
import { bool, type DType } from '../core/dtype.js';
import { CheckpointError } from '../core/errors.js';
import { numelOf, type Shape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { rawArray } from '../core/values.js';
import { valueAccess } from '../ops/construct.js';
import { addBytes, addZeros } from './checksum.js';
import { readFully } from './chunks.js';
import { readSelection, runsOf, type Selection } from './ranges.js';

/** Maximal bytes of a slab, which takes a buffer beside the target; caches have room for it. */
const SLAB_BYTES = 4 * 2 ** 20;
/** Slabs that are under way at a time. */
const MOST_SLABS = 4;
/** Runs of at most these bytes share a read with their neighbours. */
const SMALL_BYTES = 256 * 2 ** 10;
/** Maximal bytes of a shared read. */
const SHARED_BYTES = 4 * 2 ** 20;
/** Maximal bytes between two neighbours. */
const MOST_GAP_BYTES = 2048;

/** A part of a stored tensor, and the tensor that it goes to. */
export interface PartRead {
  readonly name: string;
  readonly dtype: DType;
  /** Of the whole tensor. */
  readonly shape: Shape;
  /** Where the whole tensor begins in the file. */
  readonly at: number;
  readonly selection: Selection;
  readonly into: Tensor;
}

/** A part that fits into memory, with its place in the list of checksums. */
interface Slab extends PartRead {
  readonly part: number;
  /** Where its bytes begin and end in the file. */
  readonly begin: number;
  readonly end: number;
  readonly bytes: number;
}

/** Slabs that one read gets; the first of several small ones, or a single one of any kind. */
type Shared = readonly Slab[];

/** Where to read, and how many bytes between parts may be read as well. */
export interface ReadSource {
  readonly file: Pick<FileHandle, 'read'>;
  readonly path: string;
  readonly slackBytes: number;
}

/**
 * Fills the targets. Resolves to a checksum for each part: that of the whole stored tensor with
 * zeros in the place of all that is not of the part.
 */
export async function readParts(source: ReadSource, parts: readonly PartRead[]): Promise<number[]> {
  const checksums = parts.map(() => 0);
  const groups = shareReads([...parts.entries()].flatMap(slabsOf), source.slackBytes).values();
  const failures: unknown[] = [];
  const worker = async (): Promise<void> => {
    const buffer: SlabBuffer = { memory: null };
    for (const group of groups) {
      await readGroup(source, group, checksums, buffer).catch((error) => failures.push(error));
      if (failures.length > 0) return;
    }
  };
  await Promise.all(Array.from({ length: MOST_SLABS }, worker));
  if (failures.length > 0) throw failures[0];
  return checksums;
}

/** Divides a part along its first dims until each slab fits. */
function slabsOf([part, read]: [number, PartRead]): Slab[] {
  const { dtype, shape, selection, into, at } = read;
  const { starts, sizes } = selection;
  const bytes = numelOf(sizes) * dtype.itemsize;
  if (bytes === 0) return [];
  const dim = sizes.findIndex((size) => size > 1);
  if (bytes <= SLAB_BYTES || dim < 0) {
    const { first, last, runBytes } = runsOf(shape, selection, dtype.itemsize);
    return [{ ...read, part, begin: at + first, end: at + last + runBytes, bytes }];
  }
  const size = sizes[dim] as number;
  const rows = Math.max(1, Math.floor(SLAB_BYTES / (bytes / size)));
  const slabs: Slab[] = [];
  for (let done = 0; done < size; done += rows) {
    const count = Math.min(rows, size - done);
    const inner = {
      starts: starts.map((start, i) => (i === dim ? start + done : start)),
      sizes: sizes.map((all, i) => (i === dim ? count : all)),
    };
    const target = into.narrow(dim, done, count);
    slabs.push(...slabsOf([part, { ...read, selection: inner, into: target }]));
  }
  return slabs;
}

/** Groups small slabs that are neighbours in the file, in its order. */
function shareReads(slabs: readonly Slab[], slackBytes: number): Shared[] {
  const groups: Slab[][] = [];
  let slack = slackBytes;
  const isSmall = (slab: Slab): boolean =>
    slab.bytes <= SMALL_BYTES && slab.end - slab.begin === slab.bytes;
  for (const slab of [...slabs].sort((a, b) => a.begin - b.begin)) {
    const group = groups.at(-1);
    const before = group?.at(-1);
    const gap = slab.begin - (before?.end ?? 0);
    const fits =
      group !== undefined &&
      before !== undefined &&
      isSmall(before) &&
      isSmall(slab) &&
      gap >= 0 &&
      gap <= Math.min(MOST_GAP_BYTES, slack) &&
      slab.end - (group[0] as Slab).begin <= SHARED_BYTES;
    if (fits) {
      slack -= gap;
      group.push(slab);
    } else groups.push([slab]);
  }
  return groups;
}

/** The memory of a worker; slabs of more than one row of the largest size have their own. */
interface SlabBuffer {
  memory: ArrayBuffer | null;
}

/** An array of `n` elements, on the buffer if it fits. */
function arrayOn(buffer: SlabBuffer, dtype: DType, n: number): ReturnType<typeof rawArray> {
  if (n * dtype.itemsize > SLAB_BYTES) return rawArray(dtype, n);
  buffer.memory ??= new ArrayBuffer(SLAB_BYTES);
  const array = rawArray(dtype, 0).constructor as new (
    memory: ArrayBuffer,
    offset: number,
    length: number,
  ) => ReturnType<typeof rawArray>;
  return new array(buffer.memory, 0, n);
}

async function readGroup(
  { file, path }: ReadSource,
  group: Shared,
  checksums: number[],
  buffer: SlabBuffer,
): Promise<void> {
  const [first, last] = [group[0] as Slab, group.at(-1) as Slab];
  const shared = new Uint8Array(group.length > 1 ? last.end - first.begin : 0);
  if (group.length > 1) await readFully(file, path, first.begin, shared);
  for (const slab of group) {
    const { dtype, shape, selection, into, part } = slab;
    const raw = arrayOn(buffer, dtype, numelOf(selection.sizes));
    const bytes = new Uint8Array(raw.buffer, 0, raw.byteLength);
    const { itemsize } = dtype;
    if (group.length > 1)
      bytes.set(shared.subarray(slab.begin - first.begin, slab.end - first.begin));
    else
      await readSelection(file, path, slab.at, { shape, itemsize, selection }, bytes, {
        gapBytes: 0,
      });
    if (dtype === bool) checkBools(path, slab.name, bytes);
    checksums[part] = ((checksums[part] as number) ^ checksumOf(slab, bytes)) >>> 0;
    const values = valueAccess().adopt(raw, selection.sizes, dtype);
    values.retain();
    into.copy_(values);
    // Behind the copy in the order of the device, so that the buffer is free again.
    const element = into.sizes.reduce((t, _, dim) => t.narrow(dim, 0, 1), into);
    await valueAccess().read(element, rawArray(into.dtype, 1));
    values.release();
    values.dispose();
  }
}

/** The checksum of the whole stored tensor with zeros outside of the slab. */
function checksumOf({ shape, dtype, selection }: Slab, bytes: Uint8Array): number {
  const { starts, runBytes } = runsOf(shape, selection, dtype.itemsize);
  let [checksum, end, taken] = [0, 0, 0];
  for (const start of starts) {
    const run = bytes.subarray(taken, taken + runBytes);
    checksum = addBytes(addZeros(checksum, start - end), run);
    end = start + runBytes;
    taken += runBytes;
  }
  return addZeros(checksum, numelOf(shape) * dtype.itemsize - end);
}

/** Kernels rely on bools of 0 and 1. @throws CheckpointError for other bytes */
export function checkBools(path: string, name: string, bytes: Uint8Array): void {
  const at = bytes.findIndex((byte) => byte > 1);
  if (at < 0) return;
  throw new CheckpointError(
    `${path}: tensor "${name}" of bools holds the byte ${bytes[at]} at ${at}; bools are 0 or 1`,
    { file: path, tensor: name, byte: bytes[at], at },
  );
}
