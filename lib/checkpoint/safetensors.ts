/** Saving and loading tensors in safetensors files, a tensor at a time. */
import { type FileHandle, open, rename, rm } from 'node:fs/promises';
import { cpu, type Device, type DeviceName, device as deviceOf } from '../core/device.js';
import { CheckpointError } from '../core/errors.js';
import { Tensor } from '../core/tensor.js';
import { rawArray } from '../core/values.js';
import { makeFromValues, valueAccess } from '../ops/construct.js';
import { encodeHeader, type Header, headerLength, parseHeader } from './format.js';

/** Options of {@link saveSafetensors}. */
export interface SaveOptions {
  /** Strings kept in the header. */
  metadata?: Record<string, string>;
}

/**
 * Writes tensors to a file, streaming: at most one tensor is in host memory at a time. The file appears under its name only
 * when it is complete.
 *
 * @see https://github.com/huggingface/safetensors for the format
 */
export async function saveSafetensors(path: string, tensors: Record<string, Tensor>, { metadata = {} }: SaveOptions = {}): Promise<void> {
  const entries = Object.entries(tensors);
  if (Object.hasOwn(tensors, '__metadata__')) throw new CheckpointError(`${path}: the format keeps the name "__metadata__" for itself; rename the tensor`, { file: path });
  for (const [name, t] of entries)
    if (!(t instanceof Tensor))
      throw new CheckpointError(`${path}: "${name}" is no tensor; a state dict of an optimizer holds numbers too: keep those in the metadata`, { file: path, tensor: name });
  for (const [name, value] of Object.entries(metadata))
    if (typeof value !== 'string') throw new CheckpointError(`${path}: metadata are strings, "${name}" is of type ${typeof value}`, { file: path, name });
  const temporary = `${path}.${process.pid}.partial`;
  const file = await open(temporary, 'w').catch((error: Error) => {
    throw new CheckpointError(`${path}: cannot be written: ${error.message}`, { file: path }, { cause: error });
  });
  try {
    await writeAll(
      file,
      encodeHeader(
        entries.map(([name, t]) => ({ name, dtype: t.dtype, shape: t.shape, bytes: t.nbytes })),
        metadata,
      ),
    );
    for (const [, t] of entries) {
      const raw = rawArray(t.dtype, t.numel());
      if (raw.byteLength === 0) continue;
      await valueAccess().read(t.detach().contiguous(), raw);
      await writeAll(file, new Uint8Array(raw.buffer, raw.byteOffset, raw.byteLength));
    }
    await file.sync();
  } catch (error) {
    await file.close();
    await rm(temporary, { force: true });
    throw error;
  }
  await file.close();
  await rename(temporary, path);
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
  async get(name: string, { device = cpu }: { device?: DeviceName | Device } = {}): Promise<Tensor> {
    const entry = this.header.tensors.get(name);
    if (entry === undefined) throw new CheckpointError(`${this.path}: there is no tensor "${name}"`, { file: this.path, tensor: name, names: this.names });
    const numel = entry.shape.reduce((a, b) => a * b, 1);
    const raw = rawArray(entry.dtype, numel);
    const bytes = new Uint8Array(raw.buffer, raw.byteOffset, raw.byteLength);
    await readInto(this.file, this.path, this.header.dataStart + entry.begin, bytes);
    const target = deviceOf(device);
    if (target === cpu && numel > 0) return valueAccess().adopt(raw, entry.shape, entry.dtype);
    return makeFromValues(raw, entry.shape, entry.dtype, target);
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
  await readInto(file, path, at, bytes);
  return bytes;
}

/** The system takes at most 2 GiB in one call, and Node aborts on more. */
const MOST_AT_ONCE = 2 ** 30;

async function writeAll(file: FileHandle, bytes: Uint8Array): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    const { bytesWritten } = await file.write(bytes, done, Math.min(bytes.length - done, MOST_AT_ONCE));
    done += bytesWritten;
  }
}

async function readInto(file: FileHandle, path: string, at: number, bytes: Uint8Array): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    const { bytesRead } = await file.read(bytes, done, Math.min(bytes.length - done, MOST_AT_ONCE), at + done);
    if (bytesRead === 0) throw new CheckpointError(`${path}: the file ends at byte ${at + done}, ${bytes.length - done} more were expected`, { file: path });
    done += bytesRead;
  }
}

/** Reads all tensors of a file. @throws CheckpointError for a damaged or hostile file */
export async function loadSafetensors(path: string, options: { device?: DeviceName | Device } = {}): Promise<Record<string, Tensor>> {
  const file = await SafetensorsFile.open(path);
  try {
    const tensors: [string, Tensor][] = [];
    for (const name of file.names) tensors.push([name, await file.get(name, options)]);
    return Object.fromEntries(tensors); // not by assignment: a file may call a tensor "__proto__"
  } finally {
    await file.close();
  }
}
