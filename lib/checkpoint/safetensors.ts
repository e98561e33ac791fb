/** Saving and loading tensors in safetensors files, a tensor at a time. */

import { type FileHandle, open, rename, rm } from 'node:fs/promises';
import { totalmem } from 'node:os';
import { type Device, type DeviceName, device as deviceOf } from '../core/device.js';
import { bool } from '../core/dtype.js';
import { ArgumentError, CheckpointError, ShardwiseError } from '../core/errors.js';
import { checkNumber, optionsOf, unexpected } from '../core/options.js';
import { Tensor } from '../core/tensor.js';
import { rawArray } from '../core/values.js';
import { makeFromValues, valueAccess } from '../ops/construct.js';
import { describe, requireTensor } from '../ops/operand.js';
import { CHUNK_BYTES, readFully, writeFully } from './chunks.js';
import { encodeHeader, type Header, headerLength, parseHeader, type TensorEntry } from './format.js';

/** Options of {@link saveSafetensors}. */
export interface SaveOptions {
  /** Strings kept in the header. */
  metadata?: Record<string, string>;
  /** @internal */
  chunkBytes?: number;
}

/**
 * Writes tensors to a file, streaming: at most 64 MiB are copied to host memory at a time. The file appears under its name only
 * when it is complete.
 *
 * @throws CheckpointError if the file cannot be written; ArgumentError for what is no path, or no tensor
 * @see https://github.com/huggingface/safetensors for the format
 */
export async function saveSafetensors(path: string, tensors: Record<string, Tensor>, options: SaveOptions = {}): Promise<void> {
  const op = 'saveSafetensors';
  checkPath(op, path);
  const entries = Object.entries(recordOf(op, 'tensors', 'an object of tensors by name', tensors));
  const { metadata = {}, chunkBytes = CHUNK_BYTES } = optionsOf(op, options, 'metadata chunkBytes');
  checkNumber(op, 'chunkBytes', chunkBytes, { from: 1 });
  if (Object.hasOwn(tensors, '__metadata__')) throw new CheckpointError(`${path}: the format keeps the name "__metadata__" for itself; rename the tensor`, { file: path });
  for (const [name, t] of entries) requireWhole(t, op, name);
  for (const [key, value] of Object.entries(recordOf(op, 'metadata', 'an object of strings by name', metadata))) {
    if (typeof value !== 'string') throw new ArgumentError(`${op}: metadata "${key}" must be a string, got ${describe(value)}`, { key, value });
  }
  const temporary = `${path}.${process.pid}.partial`;
  const file = await open(temporary, 'w').catch((error: Error) => {
    throw new CheckpointError(`${path}: cannot be written: ${error.message}`, { file: path }, { cause: error });
  });
  try {
    const header = encodeHeader(
      entries.map(([name, t]) => ({ name, dtype: t.dtype, shape: t.shape, bytes: t.nbytes })),
      metadata,
    );
    await writeFully(file, path, 0, header);
    let at = header.length;
    for (const [, t] of entries) {
      await writeTensor(file, path, at, t, chunkBytes);
      at += t.nbytes;
    }
    await file.sync();
    await file.close();
    await rename(temporary, path);
  } catch (error) {
    await file.close();
    await rm(temporary, { force: true });
    throw error instanceof ShardwiseError ? error : new CheckpointError(`${path}: cannot be written: ${(error as Error).message}`, { file: path }, { cause: error });
  }
}

function checkPath(op: string, path: unknown): void {
  if (typeof path !== 'string' || path === '') throw unexpected(op, 'path', 'the name of a file', path);
}

/** @throws ArgumentError for a tensor, an array and what else is no object of values by name */
function recordOf<T extends object>(op: string, name: string, expected: string, value: T): T {
  if (typeof value !== 'object' || value === null || Array.isArray(value) || value instanceof Tensor) throw unexpected(op, name, expected, value);
  return value;
}

/** Writes the elements of a tensor in row-major order, a piece at a time. */
/** @throws CheckpointError for a tensor that ranks hold together: each would write the file */
function requireWhole(t: Tensor, op: string, name: string): void {
  requireTensor(t, op, name);
  if (t.sharding === null) return;
  throw new CheckpointError(`${op}: "${name}" is held by several ranks: ${t.sharding.spec}. Take fullTensor() of it on all of them, and save that on one.`, { op, name });
}

async function writeTensor(file: FileHandle, path: string, at: number, t: Tensor, chunkBytes: number): Promise<void> {
  const { itemsize } = t.dtype;
  const flat = t.detach().contiguous().reshape(-1);
  const most = Math.max(1, Math.floor(chunkBytes / itemsize));
  const raw = rawArray(t.dtype, Math.min(most, flat.numel()));
  for (let done = 0; done < flat.numel(); done += most) {
    const count = Math.min(most, flat.numel() - done);
    const piece = raw.subarray(0, count);
    await valueAccess().read(flat.narrow(0, done, count), piece);
    await writeFully(file, path, at + done * itemsize, new Uint8Array(piece.buffer, piece.byteOffset, piece.byteLength));
  }
}

/** A safetensors file whose tensors are read when asked for. */
export class SafetensorsFile {
  readonly path: string;
  private readonly header: Header;
  private readonly file: FileHandle;

  private constructor(path: string, file: FileHandle, header: Header) {
    this.path = path;
    this.file = file;
    this.header = header;
  }

  /** Opens a file and checks its header. @throws CheckpointError for a damaged or hostile file, or one that is not there */
  static async open(path: string): Promise<SafetensorsFile> {
    checkPath('SafetensorsFile.open', path);
    const file = await open(path, 'r').catch((error: Error) => {
      throw new CheckpointError(`${path}: cannot be opened: ${error.message}`, { file: path }, { cause: error });
    });
    try {
      const { size } = await file.stat();
      const length = headerLength(path, await readAt(file, path, 0, Math.min(8, size)), size);
      return new SafetensorsFile(path, file, parseHeader(path, await readAt(file, path, 8, length), size));
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  get metadata(): Readonly<Record<string, string>> {
    return this.header.metadata;
  }

  /** Names in the order of the header. */
  get names(): string[] {
    return [...this.header.tensors.keys()];
  }

  /** Reads one tensor; on the CPU the bytes are read straight into its memory. @throws CheckpointError if there is none */
  async get(name: string, options: { device?: DeviceName | Device } = {}): Promise<Tensor> {
    if (typeof name !== 'string') throw unexpected('SafetensorsFile.get', 'name', 'a string', name);
    const { device = 'cpu' } = optionsOf('SafetensorsFile.get', options, 'device');
    const entry = this.header.tensors.get(name);
    if (entry === undefined) throw new CheckpointError(`${this.path}: there is no tensor "${name}"`, { file: this.path, tensor: name, names: this.names });
    const numel = entry.shape.reduce((a, b) => a * b, 1);
    const raw = this.allocate(name, entry, numel);
    const bytes = new Uint8Array(raw.buffer, raw.byteOffset, raw.byteLength);
    await readFully(this.file, this.path, this.header.dataStart + entry.begin, bytes);
    if (entry.dtype === bool) this.checkBools(name, bytes);
    const target = deviceOf(device);
    if (target.type === 'cpu' && numel > 0) return valueAccess().adopt(raw, entry.shape, entry.dtype);
    return makeFromValues(raw, entry.shape, entry.dtype, target);
  }

  /** Kernels count on 0 and 1. @throws CheckpointError for other bytes */
  private checkBools(name: string, bytes: Uint8Array): void {
    const at = bytes.findIndex((byte) => byte > 1);
    if (at < 0) return;
    throw new CheckpointError(`${this.path}: tensor "${name}" of bools holds the byte ${bytes[at]} at ${at}; bools are 0 or 1`, {
      file: this.path,
      tensor: name,
      byte: bytes[at],
      at,
    });
  }

  /** Host memory for a tensor. A sparse file claims any size, and JavaScript's own error names neither file nor tensor. */
  private allocate(name: string, { dtype, begin, end }: TensorEntry, numel: number): ReturnType<typeof rawArray> {
    const bytes = end - begin;
    const refused = (reason: string, cause?: unknown): CheckpointError =>
      new CheckpointError(`${this.path}: no memory for tensor "${name}" of ${bytes} bytes: ${reason}`, { file: this.path, tensor: name, bytes }, { cause });
    // The system may promise more than it has, and end the process when that is filled.
    if (bytes > totalmem()) throw refused(`this machine has ${totalmem()} bytes`);
    try {
      return rawArray(dtype, numel);
    } catch (error) {
      throw refused((error as Error).message, error);
    }
  }

  close(): Promise<void> {
    return this.file.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

async function readAt(file: FileHandle, path: string, at: number, length: number): Promise<Uint8Array> {
  const bytes = new Uint8Array(length);
  await readFully(file, path, at, bytes);
  return bytes;
}

/** Reads all tensors of a file. @throws CheckpointError for a damaged or hostile file */
export async function loadSafetensors(path: string, options: { device?: DeviceName | Device } = {}): Promise<Record<string, Tensor>> {
  optionsOf('loadSafetensors', options);
  const file = await SafetensorsFile.open(path);
  try {
    const tensors: [string, Tensor][] = [];
    for (const name of file.names) tensors.push([name, await file.get(name, options)]);
    return Object.fromEntries(tensors); // not by assignment: a file may call a tensor "__proto__"
  } finally {
    await file.close();
  }
}
