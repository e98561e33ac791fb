/** Loads tensors of safetensors files, one at a time. */
import type { FileHandle } from 'node:fs/promises';
import { totalmem } from 'node:os';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { getHeapStatistics } from 'node:v8';
import { type Device, type DeviceName, device as deviceOf } from '../core/device.js';
import { bool, type DType } from '../core/dtype.js';
import { CheckpointError, ShapeError } from '../core/errors.js';
import { checkNumber, optionsOf, unexpected } from '../core/options.js';
import { formatShape, numelOf, type Shape, sameShape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { rawArray } from '../core/values.js';
import { openRegular } from '../files/regular-file.js';
import { makeFromValues, valueAccess } from '../ops/construct.js';
import { empty } from '../ops/factories.js';
import { requireTensor } from '../ops/operand.js';
import { checksumOf } from './checksum.js';
import { readFully } from './chunks.js';
import { headerLength } from './format.js';
import { Header, MEMORY_PER_HEADER_BYTE } from './header.js';
import { type IndexRange, readSelection, type Selection, selectionOf } from './ranges.js';
import { checkBools, type PartRead, readParts } from './read-into.js';
import { checkPath } from './save.js';
import { inSlices } from './time-slices.js';

/** Maximal time that loading blocks the event loop. */
const MOST_BUSY_MS = 3;
/** Approximate bytes of a tensor in JavaScript's heap. */
const HEAP_PER_TENSOR = 1000;

/** Options of {@link SafetensorsFile.get}. */
export interface GetOptions {
  /** The device of the tensor, the CPU by default. On `meta`, nothing is read. */
  device?: DeviceName | Device;
  /**
   * A part of the tensor: for each dim the indices `[start, end)`, or null for all. Dims without a
   * range are read whole.
   */
  ranges?: readonly (IndexRange | null)[];
}

/** A part of a stored tensor, and the tensor that it goes to. */
export interface ReadIntoRequest {
  /** The name of the stored tensor. */
  name: string;
  /** For each dim the indices `[start, end)`, or null for all; dims without a range are whole. */
  ranges?: readonly (IndexRange | null)[];
  /** A tensor of the shape of the part. */
  into: Tensor;
}

/** Options of {@link SafetensorsFile.readInto}. */
export interface ReadIntoOptions {
  /** Bytes between parts that may be read as well, to save reads. 128 KiB by default. */
  slackBytes?: number;
}

const SLACK_BYTES = 128 * 2 ** 10;

/** An open safetensors file, whose tensors are read on demand. */
export class SafetensorsFile {
  /** The path of the file. */
  readonly path: string;
  private readonly header: Header;
  private readonly file: FileHandle;
  private readonly counted: Pick<FileHandle, 'read'>;
  /** Bytes of tensors that were read so far. @internal */
  bytesRead = 0;
  /** Reads of tensors so far. @internal */
  reads = 0;

  private constructor(path: string, file: FileHandle, header: Header) {
    this.path = path;
    this.file = file;
    this.header = header;
    const read = async (bytes: Uint8Array, offset: number, length: number, at: number) => {
      const result = await file.read(bytes, offset, length, at);
      this.reads++;
      this.bytesRead += result.bytesRead;
      return result;
    };
    this.counted = { read: read as FileHandle['read'] };
  }

  /**
   * Opens a regular file and checks its header. @throws CheckpointError if the file is damaged,
   * hostile or missing, or is not a regular file
   */
  static async open(path: string): Promise<SafetensorsFile> {
    checkPath('SafetensorsFile.open', path);
    const { file, size } = await openRegular(path).catch((error: Error) => {
      throw new CheckpointError(
        `${path}: cannot be opened: ${error.message}`,
        { file: path },
        { cause: error },
      );
    });
    try {
      const length = headerLength(path, await readAt(file, path, 0, Math.min(8, size)), size);
      requireMemory(path, length);
      const json = await readAt(file, path, 8, length);
      return new SafetensorsFile(path, file, await inSlices(Header.parse(path, json, size)));
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  /** The texts of `__metadata__`. */
  get metadata(): Readonly<Record<string, string>> {
    return this.header.metadata;
  }

  /** Number of tensors. @internal */
  get size(): number {
    return this.header.size;
  }

  /** @internal */
  iterateNames(): Iterable<string> {
    return this.header.names();
  }

  /** Names in the order of the header. */
  get names(): string[] {
    return [...this.header.names()];
  }

  /**
   * Reads one tensor, or with `ranges` a part of it at the cost of the part. On the CPU the bytes
   * go directly into its memory.
   *
   * @throws CheckpointError if the file has no tensor of this name; ArgumentError, ShapeError,
   * IndexError for ranges that do not fit the tensor
   * @example
   * await saveSafetensors('model.safetensors', { weight: arange(6).reshape([3, 2]) });
   * await using file = await SafetensorsFile.open('model.safetensors');
   * const rows = await file.get('weight', { ranges: [[1, 3]] });
   * rows; // [[2, 3], [4, 5]]
   */
  async get(name: string, options: GetOptions = {}): Promise<Tensor> {
    if (typeof name !== 'string') throw unexpected('SafetensorsFile.get', 'name', 'a string', name);
    const { device = 'cpu', ranges = [] } = optionsOf(
      'SafetensorsFile.get',
      options,
      'device ranges',
    );
    const { dtype, shape } = this.entryOf(name);
    const selection = selectionOf('SafetensorsFile.get', ranges, shape);
    const { sizes } = selection;
    const target = deviceOf(device);
    if (target.type === 'meta') return empty(sizes, { dtype, device: target });
    const raw = await this.read(name, selection);
    return tensorOf(raw, sizes, dtype, target);
  }

  /**
   * Reads a tensor of the CPU, and its checksum as {@link saveSafetensors} returns it. @internal
   */
  async getWithChecksum(name: string): Promise<{ tensor: Tensor; checksum: number }> {
    const { dtype, shape } = this.entryOf(name);
    const raw = await this.read(name, selectionOf('SafetensorsFile.get', [], shape));
    const bytes = new Uint8Array(raw.buffer, raw.byteOffset, raw.byteLength);
    const checksum = await inSlices(checksumOf(bytes));
    return { tensor: tensorOf(raw, shape, dtype, deviceOf('cpu')), checksum };
  }

  /** The elements of a part of a tensor. */
  private async read(name: string, selection: Selection): Promise<ReturnType<typeof rawArray>> {
    const { dtype, shape, begin } = this.entryOf(name);
    const raw = this.allocate(name, dtype, numelOf(selection.sizes));
    const bytes = new Uint8Array(raw.buffer, raw.byteOffset, raw.byteLength);
    const stored = { shape, itemsize: dtype.itemsize, selection };
    await readSelection(this.counted, this.path, this.header.dataStart + begin, stored, bytes);
    if (dtype === bool) checkBools(this.path, name, bytes);
    return raw;
  }

  /**
   * Reads parts of several tensors into tensors that are there, with few large reads and little
   * memory beside them. The targets take the values as by `copy_`, on any device and of any dtype.
   *
   * Resolves to a checksum of each part: that of the whole stored tensor, as {@link
   * saveSafetensors} returns it, with zeros in the place of all that is not of the part. The
   * checksums of parts that together are the tensor give that of the tensor by XOR.
   *
   * @throws CheckpointError if the file has no tensor of a name, is too short or cannot be read;
   * ShapeError if a target does not have the shape of its part; ArgumentError, IndexError for
   * ranges that do not fit the tensor
   * @example
   * const weight = arange(6, { dtype: float32 }).reshape([3, 2]);
   * await saveSafetensors('model.safetensors', { weight });
   * await using file = await SafetensorsFile.open('model.safetensors');
   * const rows = zeros([2, 2]);
   * await file.readInto([{ name: 'weight', ranges: [[1, 3]], into: rows }]);
   * rows; // [[2, 3], [4, 5]]
   */
  async readInto(
    requests: readonly ReadIntoRequest[],
    options: ReadIntoOptions = {},
  ): Promise<number[]> {
    const op = 'SafetensorsFile.readInto';
    if (!Array.isArray(requests))
      throw unexpected(op, 'requests', 'a list of { name, ranges, into }', requests);
    const { slackBytes = SLACK_BYTES } = optionsOf(op, options, 'slackBytes');
    checkNumber(op, 'slackBytes', slackBytes, { from: 0, whole: true });
    const parts = requests.map((request) => this.partOf(op, request));
    return readParts({ file: this.counted, path: this.path, slackBytes }, parts);
  }

  private partOf(op: string, request: ReadIntoRequest): PartRead {
    const { name, ranges = [], into } = optionsOf(op, request, 'name ranges into');
    if (typeof name !== 'string') throw unexpected(op, 'name', 'a string', name);
    requireTensor(into, op, 'into');
    if (into.sharding !== null)
      throw unexpected(op, 'into', 'a plain tensor, such as the local shard of this one', into);
    const { dtype, shape, begin } = this.entryOf(name);
    const selection = selectionOf(op, ranges, shape);
    if (!sameShape(into.sizes, selection.sizes))
      throw new ShapeError(
        `${op}: expected the target of "${name}" to have the shape of the part, ` +
          `${formatShape(selection.sizes)}, got ${formatShape(into.sizes)}`,
        { op, name, expected: selection.sizes, given: into.sizes },
      );
    return { name, dtype, shape, at: this.header.dataStart + begin, selection, into };
  }

  /** Dtype and sizes of a tensor, from the header. @throws CheckpointError if there is none */
  metaOf(name: string): { readonly dtype: DType; readonly shape: Shape } {
    if (typeof name !== 'string')
      throw unexpected('SafetensorsFile.metaOf', 'name', 'a string', name);
    const { dtype, shape } = this.entryOf(name);
    return { dtype, shape };
  }

  private entryOf(name: string): NonNullable<ReturnType<Header['get']>> {
    const entry = this.header.get(name);
    if (entry !== null) return entry;
    throw new CheckpointError(`${this.path}: there is no tensor "${name}"`, {
      file: this.path,
      tensor: name,
    });
  }

  /**
   * Allocates host memory for a tensor. A sparse file may claim any size, and JavaScript's own
   * error names neither file nor tensor.
   */
  private allocate(name: string, dtype: DType, numel: number): ReturnType<typeof rawArray> {
    const bytes = numel * dtype.itemsize;
    const refused = (reason: string, cause?: unknown): CheckpointError =>
      new CheckpointError(
        `${this.path}: no memory for tensor "${name}" of ${bytes} bytes: ${reason}`,
        { file: this.path, tensor: name, bytes },
        { cause },
      );
    // The system may overcommit, and kill the process when the memory is written.
    const most = memoryLimit();
    if (bytes > most) throw refused(`this process may have ${most} bytes`);
    try {
      return rawArray(dtype, numel);
    } catch (error) {
      throw refused((error as Error).message, error);
    }
  }

  /** Closes the file. */
  close(): Promise<void> {
    return this.file.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

/** A tensor with these elements; on the CPU it takes their memory over. */
function tensorOf(
  raw: ReturnType<typeof rawArray>,
  shape: Shape,
  dtype: DType,
  device: Device,
): Tensor {
  if (device.type === 'cpu' && raw.byteLength > 0) return valueAccess().adopt(raw, shape, dtype);
  return makeFromValues(raw, shape, dtype, device);
}

/** Memory of this machine, or the limit of the container of this process. */
function memoryLimit(): number {
  const constrained = process.constrainedMemory();
  return constrained > 0 ? Math.min(totalmem(), constrained) : totalmem();
}

/** @throws CheckpointError if a header does not fit into memory */
function requireMemory(path: string, headerBytes: number): void {
  const [needed, most] = [headerBytes * MEMORY_PER_HEADER_BYTE, memoryLimit()];
  if (needed <= most) return;
  throw new CheckpointError(
    `${path}: no memory for a header of ${headerBytes} bytes: it may take ${needed}, this ` +
      `process may have ${most} bytes`,
    { file: path, headerBytes },
  );
}

async function readAt(
  file: FileHandle,
  path: string,
  at: number,
  length: number,
): Promise<Uint8Array> {
  const bytes = new Uint8Array(length);
  await readFully(file, path, at, bytes);
  return bytes;
}

/**
 * Reads all tensors of a file. As in any object, names that are whole numbers come first; {@link
 * SafetensorsFile.names} has the order of the file.
 *
 * @throws CheckpointError if the file is damaged or hostile, or is not a regular file
 * @example
 * await saveSafetensors('model.safetensors', { weight: ones([2]) });
 * const { weight } = await loadSafetensors('model.safetensors');
 * weight; // [1, 1]
 */
export async function loadSafetensors(
  path: string,
  options: { device?: DeviceName | Device } = {},
): Promise<Record<string, Tensor>> {
  optionsOf('loadSafetensors', options, 'device');
  const file = await SafetensorsFile.open(path);
  try {
    requireHeap(path, file.size);
    const tensors: Record<string, Tensor> = {};
    let since = performance.now();
    for (const name of file.iterateNames()) {
      const value = await file.get(name, options);
      Object.defineProperty(tensors, name, {
        value,
        writable: true,
        enumerable: true,
        configurable: true,
      }); // a file may call a tensor "__proto__"
      if (performance.now() - since < MOST_BUSY_MS) continue;
      await nextTurn(); // tensors without elements read nothing, so get() does not yield for them
      since = performance.now();
    }
    return tensors;
  } finally {
    await file.close();
  }
}

/** @throws CheckpointError if the tensors do not fit into JavaScript's heap */
function requireHeap(path: string, count: number): void {
  const { heap_size_limit: limit, used_heap_size: used } = getHeapStatistics();
  if (count * HEAP_PER_TENSOR <= limit - used) return;
  throw new CheckpointError(
    `${path}: its ${count} tensors are more than fit into the JavaScript heap of ${limit} ` +
      'bytes; open it as SafetensorsFile and get those you need',
    {
      file: path,
      count,
    },
  );
}
