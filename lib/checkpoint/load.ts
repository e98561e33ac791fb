/** Loading tensors of safetensors files, one at a time. */
import type { FileHandle } from 'node:fs/promises';
import { totalmem } from 'node:os';
import { type Device, type DeviceName, device as deviceOf } from '../core/device.js';
import { bool } from '../core/dtype.js';
import { CheckpointError } from '../core/errors.js';
import { optionsOf, unexpected } from '../core/options.js';
import type { Tensor } from '../core/tensor.js';
import { rawArray } from '../core/values.js';
import { openRegular } from '../files/regular-file.js';
import { makeFromValues, valueAccess } from '../ops/construct.js';
import { readFully } from './chunks.js';
import { type Header, headerLength, parseHeader, type TensorEntry } from './format.js';
import { checkPath } from './save.js';

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

  /** Opens a regular file and checks its header. @throws CheckpointError for a damaged or hostile file, a FIFO, a device, or a file that is not there */
  static async open(path: string): Promise<SafetensorsFile> {
    checkPath('SafetensorsFile.open', path);
    const { file, size } = await openRegular(path).catch((error: Error) => {
      throw new CheckpointError(`${path}: cannot be opened: ${error.message}`, { file: path }, { cause: error });
    });
    try {
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
