/** Saves tensors as a safetensors file, a chunk at a time. */
import type { FileHandle } from 'node:fs/promises';
import { ArgumentError, CheckpointError, ShardwiseError } from '../core/errors.js';
import { checkNumber, optionsOf, unexpected } from '../core/options.js';
import { Tensor } from '../core/tensor.js';
import { rawArray } from '../core/values.js';
import { replaceFile } from '../files/replace-file.js';
import { valueAccess } from '../ops/construct.js';
import { describe, requireTensor } from '../ops/operand.js';
import { addBytes } from './checksum.js';
import { writeFully } from './chunks.js';
import { encodeHeader } from './format.js';

/** Options of {@link saveSafetensors}. */
export interface SaveOptions {
  /** Strings that the header stores. */
  metadata?: Record<string, string>;
  /** @internal */
  chunkBytes?: number;
}

/** What is copied, summed and written at a time; the caches of a processor have room for it. */
const SAVE_CHUNK_BYTES = 8 * 2 ** 20;

/** What {@link saveSafetensors} has written. */
export interface SavedFile {
  /**
   * A checksum of the bytes of each tensor, by name: CRC-32 that begins at zero, which {@link
   * SafetensorsFile.readInto} computes too.
   */
  readonly checksums: Readonly<Record<string, number>>;
  /** Bytes of the file. */
  readonly bytes: number;
}

/**
 * Writes tensors to a file as a stream: at most 8 MiB are copied to host memory at a time.
 *
 * The file is written under a temporary name in the same folder, flushed to the disk and renamed,
 * so a reader of `path` finds either the old file or the new one, complete. Saves of one process to
 * one path run in the order of the calls; among worker threads and other processes the last one to
 * end wins. A symbolic link stays, and the file that it names is replaced. The mode of an existing
 * file is kept. A failed save leaves nothing behind; the next save to the path removes the
 * temporary file of a killed process (`<name>.*.partial`).
 *
 * Tensors must not change before the promise settles. If one changes, the save fails and the old
 * file stays. To change tensors meanwhile, save clones.
 *
 * @throws CheckpointError if the file cannot be written, `path` is not a regular file, or a tensor
 * changes during the save; ArgumentError if `path` is not a path or a value not a tensor
 * @see https://github.com/huggingface/safetensors for the format
 * @example
 * await saveSafetensors('model.safetensors', new nn.Linear(8, 4).stateDict());
 */
export async function saveSafetensors(
  path: string,
  tensors: Record<string, Tensor>,
  options: SaveOptions = {},
): Promise<SavedFile> {
  const op = 'saveSafetensors';
  checkPath(op, path);
  const entries = Object.entries(
    recordOf(op, 'tensors', 'an object of tensors by name, such as module.stateDict()', tensors),
  );
  const { metadata = {}, chunkBytes = SAVE_CHUNK_BYTES } = optionsOf(
    op,
    options,
    'metadata chunkBytes',
  );
  checkNumber(op, 'chunkBytes', chunkBytes, { from: 1 });
  for (const [name, t] of entries) requireWhole(t, op, name);
  for (const [key, value] of Object.entries(
    recordOf(op, 'metadata', 'an object of strings by name', metadata),
  )) {
    if (typeof value !== 'string')
      throw new ArgumentError(`${op}: metadata "${key}" must be a string, got ${describe(value)}`, {
        key,
        value,
      });
  }
  const texts = { ...metadata };
  return writeTensors(path, entries, () => texts, chunkBytes);
}

/**
 * Writes tensors as {@link saveSafetensors} does. The texts may have the checksums of the tensors,
 * which are 0 at first, in a form whose length does not depend on them.
 */
export async function writeTensors(
  path: string,
  tensors: readonly (readonly [name: string, t: Tensor])[],
  metadataOf: (checksums: SavedFile['checksums']) => Record<string, string>,
  chunkBytes = SAVE_CHUNK_BYTES,
): Promise<SavedFile> {
  if (tensors.some(([name]) => name === '__metadata__'))
    throw new CheckpointError(
      `${path}: the format keeps the name "__metadata__" for itself; rename the tensor`,
      { file: path },
    );
  const sources: Source[] = [];
  try {
    for (const [name, t] of tensors) sources.push(new Source(path, name, t));
    const planned = sources.map(({ name, view }) => {
      const { dtype, sizes: shape, nbytes: bytes } = view;
      return { name, dtype, shape, bytes };
    });
    const headerOf = (checksums: SavedFile['checksums']): Uint8Array =>
      encodeHeader(path, planned, metadataOf(checksums));
    const first = headerOf(Object.fromEntries(sources.map(({ name }) => [name, 0])));
    let checksums: SavedFile['checksums'] = {};
    await replaceFile(path, async (file) => {
      await writeFully(file, path, 0, first);
      checksums = await writeAll(file, path, first.length, sources, chunkBytes);
      const last = headerOf(checksums);
      if (Buffer.compare(first, last) !== 0) await writeFully(file, path, 0, last);
    });
    const bytes = sources.reduce((sum, { view }) => sum + view.nbytes, first.length);
    return { checksums, bytes };
  } catch (error) {
    throw cannotWrite(path, error);
  } finally {
    for (const source of sources) source.release();
  }
}

/** @throws ArgumentError unless `path` is a string that is not empty */
export function checkPath(op: string, path: unknown): void {
  if (typeof path !== 'string' || path === '')
    throw unexpected(op, 'path', 'the name of a file', path);
}

/** @throws ArgumentError unless `value` is an object of values by name */
function recordOf<T extends object>(op: string, name: string, expected: string, value: T): T {
  if (
    typeof value !== 'object' ||
    value === null ||
    Array.isArray(value) ||
    value instanceof Tensor
  )
    throw unexpected(op, name, expected, value);
  return value;
}

/** @throws CheckpointError for a distributed tensor: every rank would write the file */
function requireWhole(t: Tensor, op: string, name: string): void {
  requireTensor(t, op, name);
  if (t.sharding === null) return;
  throw new CheckpointError(
    `${op}: "${name}" is held by several ranks: ${t.sharding.spec}. Take fullTensor() of it ` +
      'on all of them, and save that on one.',
    { op, name },
  );
}

/**
 * A tensor as it was when the save started: before it is written, the caller may dispose of it or
 * give it other memory.
 */
class Source {
  readonly name: string;
  readonly view: Tensor;
  private readonly path: string;
  private readonly version: number;

  constructor(path: string, name: string, t: Tensor) {
    this.path = path;
    this.name = name;
    this.view = t.detach(); // shares memory and version counter
    this.view.retain();
    this.version = this.view.currentVersion;
  }

  /**
   * @throws CheckpointError if the tensor, or another on the same memory, was changed in place
   * since the save started
   */
  requireUnchanged(): void {
    if (this.view.currentVersion === this.version) return;
    throw new CheckpointError(
      `${this.path}: tensor "${this.name}" was changed in place while it was being saved; ` +
        'await saveSafetensors before the next change, or save clones',
      {
        file: this.path,
        tensor: this.name,
      },
    );
  }

  release(): void {
    this.view.release();
    this.view.dispose();
  }
}

async function writeAll(
  file: FileHandle,
  path: string,
  begin: number,
  sources: readonly Source[],
  chunkBytes: number,
): Promise<SavedFile['checksums']> {
  let at = begin;
  const checksums: [string, number][] = [];
  const largest = Math.max(0, ...sources.map(({ view }) => view.nbytes));
  const buffer = new ArrayBuffer(Math.max(8, Math.min(chunkBytes, largest)));
  for (const source of sources) {
    checksums.push([source.name, await writeTensor(file, path, at, source, buffer)]);
    at += source.view.nbytes;
  }
  for (const source of sources) source.requireUnchanged(); // together they are one state
  return Object.fromEntries(checksums);
}

/**
 * Writes the elements of a tensor in row-major order, a chunk at a time; returns their checksum.
 */
async function writeTensor(
  file: FileHandle,
  path: string,
  at: number,
  source: Source,
  buffer: ArrayBuffer,
): Promise<number> {
  const { dtype } = source.view;
  const flat = source.view.contiguous().reshape(-1);
  const most = Math.floor(buffer.byteLength / dtype.itemsize);
  const array = rawArray(dtype, 0).constructor as new (
    buffer: ArrayBuffer,
    offset: number,
    length: number,
  ) => ReturnType<typeof rawArray>;
  let checksum = 0;
  for (let done = 0; done < flat.numel(); done += most) {
    const chunk = new array(buffer, 0, Math.min(most, flat.numel() - done));
    await valueAccess().read(flat.narrow(0, done, chunk.length), chunk);
    source.requireUnchanged();
    const bytes = new Uint8Array(buffer, 0, chunk.byteLength);
    checksum = addBytes(checksum, bytes);
    await writeFully(file, path, at + done * dtype.itemsize, bytes);
  }
  return checksum;
}

/**
 * Writes a text file as {@link saveSafetensors} writes its file: a reader finds the old text or the
 * new one, complete, also after a crash.
 *
 * @throws CheckpointError if it cannot be written; ArgumentError if `path` is not a path or `text`
 * not a string
 */
export async function saveText(path: string, text: string): Promise<void> {
  checkPath('saveText', path);
  if (typeof text !== 'string') throw unexpected('saveText', 'text', 'a string', text);
  try {
    await replaceFile(path, (file) => writeFully(file, path, 0, Buffer.from(text)));
  } catch (error) {
    throw cannotWrite(path, error);
  }
}

function cannotWrite(path: string, error: unknown): ShardwiseError {
  if (error instanceof ShardwiseError) return error;
  const { message } = error as Error;
  return new CheckpointError(
    `${path}: cannot be written: ${message}`,
    { file: path },
    { cause: error },
  );
}
