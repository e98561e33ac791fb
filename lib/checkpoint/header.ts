/**
 * Parses and checks the header of a safetensors file. A header of 100 MB describes two million
 * tensors, so each is only numbers in typed arrays, not an object, and all loops yield.
 */
import type { DType } from '../core/dtype.js';
import { CheckpointError } from '../core/errors.js';
import { byCode } from './format.js';
import { CLOSE, JsonScanner, OPEN, QUOTE, type Text } from './json-scanner.js';
import { hashBytes, hashNumber, RecordTable } from './record-table.js';

/** One tensor in a file. */
export interface TensorEntry {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: number[];
  /** Bytes from the start of the data section. */
  readonly begin: number;
  readonly end: number;
}

const MAX_DIMS = 16;
const MAX_METADATA = 65_536;
/**
 * Bytes of `"":{"dtype":"U8","shape":[],"data_offsets":[0,0]},`, the shortest entry of a tensor.
 */
const SHORTEST_ENTRY = 50;
const DIMS_BLOCK = 2 ** 15;
/** Maximal memory for one byte of a header: the byte itself and the arrays of its tensors. */
export const MEMORY_PER_HEADER_BYTE = 6;

const dtypes = [...byCode.values()];
const fields = ['dtype', 'shape', 'data_offsets'];

/** The fields in the entry of a tensor. */
type Fields = { [key: string]: unknown; dtype?: DType; shape?: number[]; data_offsets?: number[] };

/** A checked header. */
export class Header {
  /** Position of the data section in the file. */
  readonly dataStart: number;
  /** Number of tensors. */
  size = 0;
  private readonly file: string;
  private readonly scan: JsonScanner;
  private readonly dataBytes: number;
  private readonly table: RecordTable;
  private readonly nameStart: Uint32Array;
  private readonly nameEnd: Uint32Array;
  private readonly escaped: Uint8Array;
  private readonly hash: Uint32Array;
  private readonly dtype: Uint8Array;
  private readonly begin: Float64Array;
  private readonly end: Float64Array;
  private readonly ndim: Uint8Array;
  private readonly dimsAt: Uint32Array;
  private readonly dims: Float64Array[] = [];
  private dimsUsed = 0;
  private metadataText: Text | null = null;
  private metadataRead: Record<string, string> | null = null;

  private constructor(file: string, json: Uint8Array, fileBytes: number) {
    this.file = file;
    this.scan = new JsonScanner(json);
    this.dataStart = 8 + json.length;
    this.dataBytes = fileBytes - this.dataStart;
    // The system reserves this memory, and commits only the pages that are written.
    const most = Math.floor(json.length / SHORTEST_ENTRY) + 1;
    this.table = new RecordTable(most);
    [this.nameStart, this.nameEnd, this.hash, this.dimsAt] = [
      new Uint32Array(most),
      new Uint32Array(most),
      new Uint32Array(most),
      new Uint32Array(most),
    ];
    [this.escaped, this.dtype, this.ndim] = [
      new Uint8Array(most),
      new Uint8Array(most),
      new Uint8Array(most),
    ];
    [this.begin, this.end] = [new Float64Array(most), new Float64Array(most)];
  }

  /**
   * Parses and checks a header in steps. @throws CheckpointError that names the tensor and the
   * wrong values
   */
  static *parse(file: string, json: Uint8Array, fileBytes: number): Generator<void, Header> {
    const header = new Header(file, json, fileBytes);
    if (json[0] !== OPEN) throw header.bad('its header is not a JSON object: it must begin with {');
    try {
      yield* header.scan.checkUtf8();
      yield* header.readMembers();
    } catch (error) {
      throw error instanceof CheckpointError
        ? error
        : header.bad(`its header is not JSON (${(error as Error).message})`);
    }
    yield* header.checkCoverage();
    return header;
  }

  get metadata(): Readonly<Record<string, string>> {
    if (this.metadataRead === null)
      this.metadataRead =
        this.metadataText === null
          ? {}
          : (JSON.parse(this.scan.read(this.metadataText)) as Record<string, string>);
    return this.metadataRead;
  }

  /** Names in the order of the header. */
  *names(): Generator<string, void> {
    for (let i = 0; i < this.size; i++) yield this.nameOf(i);
  }

  /** The entry of a name, or null. */
  get(name: string): TensorEntry | null {
    const bytes = Buffer.from(name);
    const hash = hashBytes(bytes, 0, bytes.length);
    const found = this.table.find(hash, (i) => this.hash[i] === hash && this.nameOf(i) === name);
    return found === null ? null : this.entry(found);
  }

  private entry(i: number): TensorEntry {
    const at = this.dimsAt[i] as number;
    const shape = [
      ...(this.dims[Math.floor(at / DIMS_BLOCK)]?.subarray(
        at % DIMS_BLOCK,
        (at % DIMS_BLOCK) + (this.ndim[i] as number),
      ) ?? []),
    ];
    return {
      name: this.nameOf(i),
      dtype: dtypes[this.dtype[i] as number] as DType,
      shape,
      begin: this.begin[i] as number,
      end: this.end[i] as number,
    };
  }

  private nameOf(i: number): string {
    return this.scan.read({
      start: this.nameStart[i] as number,
      end: this.nameEnd[i] as number,
      escaped: this.escaped[i] === 1,
    });
  }

  private bad(what: string, details: Record<string, unknown> = {}): CheckpointError {
    return new CheckpointError(`${this.file}: not a valid safetensors file: ${what}`, {
      file: this.file,
      ...details,
    });
  }

  private *readMembers(): Generator<void> {
    const { scan } = this;
    yield* scan.expect(OPEN);
    if ((yield* scan.next()) === CLOSE) scan.at++;
    else
      do {
        if ((yield* scan.next()) !== QUOTE) throw scan.fail('expected a name');
        const text = yield* scan.name();
        if (text.end - text.start < 100 && scan.read(text) === '__metadata__')
          yield* this.readMetadata();
        else yield* this.readTensor(text);
        if (scan.stepDone) yield;
      } while (yield* scan.more(CLOSE));
    if ((yield* scan.next()) !== undefined) throw scan.fail('something behind the end');
  }

  private *readMetadata(): Generator<void> {
    const { scan } = this;
    if (this.metadataText !== null) throw this.bad('__metadata__ is given twice');
    const wrong = '__metadata__ must map strings to strings';
    if ((yield* scan.next()) !== OPEN) throw this.bad(wrong);
    const start = scan.at++;
    const names = new Set<string>();
    if ((yield* scan.next()) === CLOSE) scan.at++;
    else
      do {
        const name = scan.read(yield* scan.name());
        if (names.has(name)) throw this.bad(`__metadata__ has "${name}" twice`);
        if (names.add(name).size > MAX_METADATA)
          throw this.bad(`__metadata__ has more than ${MAX_METADATA} entries`);
        if ((yield* scan.next()) !== QUOTE) throw this.bad(wrong);
        yield* scan.string();
      } while (yield* scan.more(CLOSE));
    this.metadataText = { start, end: scan.at, escaped: false };
  }

  private *readTensor(text: Text): Generator<void> {
    const { scan } = this;
    const name = scan.read(text);
    const at = { tensor: name };
    if ((yield* scan.next()) !== OPEN)
      throw this.bad(`tensor "${name}" is not described by an object`, at);
    scan.at++;
    const read: Fields = {};
    if ((yield* scan.next()) === CLOSE) scan.at++;
    else
      do {
        const fieldText = yield* scan.name();
        const field = fieldText.end - fieldText.start < 100 ? scan.read(fieldText) : '';
        if (!fields.includes(field)) {
          yield* scan.value(); // a later version may have more fields
          continue;
        }
        if (Object.hasOwn(read, field)) throw this.bad(`tensor "${name}" has ${field} twice`, at);
        yield* this.readField(name, field, read);
      } while (yield* scan.more(CLOSE));
    this.check(name, read);
    this.addEntry(name, text, read as Required<Fields>);
  }

  private *readField(name: string, field: string, read: Fields): Generator<void> {
    const { scan } = this;
    const start = (yield* scan.next(), scan.at);
    if (field === 'dtype') {
      const code = scan.bytes[scan.at] === QUOTE ? yield* scan.string() : null;
      const dtype =
        code !== null && code.end - code.start < 100 ? byCode.get(scan.read(code)) : undefined;
      if (dtype === undefined)
        throw this.bad(`tensor "${name}" has unknown dtype ${scan.excerpt(start)}`, {
          tensor: name,
        });
      read.dtype = dtype;
      return;
    }
    const counts = yield* scan.counts(field === 'shape' ? MAX_DIMS : 2);
    if (counts === null || (field !== 'shape' && counts.length !== 2))
      throw this.bad(`tensor "${name}" has ${field} ${scan.excerpt(start)}`, { tensor: name });
    read[field] = counts;
  }

  private check(name: string, { dtype, shape, data_offsets: offsets }: Fields): void {
    const missing = dtype === undefined ? 'dtype' : shape === undefined ? 'shape' : 'data_offsets';
    if (dtype === undefined || shape === undefined || offsets === undefined)
      throw this.bad(`tensor "${name}" has no ${missing}`, { tensor: name });
    const [begin, end] = offsets as [number, number];
    const details = { tensor: name, begin, end };
    if (end < begin || end > this.dataBytes)
      throw this.bad(
        `tensor "${name}" lies at bytes ${begin} to ${end} of a data section of ${this.dataBytes}`,
        details,
      );
    const bytes = shape.reduce(
      (n, s) => (Number.isSafeInteger(n * s) ? n * s : Number.POSITIVE_INFINITY),
      dtype.itemsize,
    );
    if (end - begin !== bytes)
      throw this.bad(
        `tensor "${name}" of shape [${shape.join(', ')}] needs ${bytes} bytes, data_offsets ` +
          `give ${end - begin}`,
        details,
      );
  }

  /** Stores a checked entry. @throws CheckpointError if its name is given twice */
  private addEntry(
    name: string,
    text: Text,
    { dtype, shape, data_offsets: offsets }: Required<Fields>,
  ): void {
    const bytes = text.escaped ? Buffer.from(name) : null;
    const hash =
      bytes === null
        ? hashBytes(this.scan.bytes, text.start, text.end)
        : hashBytes(bytes, 0, bytes.length);
    const before = this.table.find(hash, (i) => this.hash[i] === hash && this.nameOf(i) === name);
    if (before !== null) throw this.bad(`tensor "${name}" is given twice`, { tensor: name });
    const i = this.size++;
    this.table.add(hash, i);
    [this.hash[i], this.nameStart[i], this.nameEnd[i], this.escaped[i]] = [
      hash,
      text.start,
      text.end,
      text.escaped ? 1 : 0,
    ];
    [this.begin[i], this.end[i], this.dtype[i], this.ndim[i]] = [
      offsets[0] as number,
      offsets[1] as number,
      dtypes.indexOf(dtype),
      shape.length,
    ];
    const left = DIMS_BLOCK - (this.dimsUsed % DIMS_BLOCK);
    if (left < shape.length) this.dimsUsed += left; // a shape lies in one block
    const block = Math.floor(this.dimsUsed / DIMS_BLOCK);
    (this.dims[block] ??= new Float64Array(DIMS_BLOCK)).set(shape, this.dimsUsed % DIMS_BLOCK);
    this.dimsAt[i] = this.dimsUsed;
    this.dimsUsed += shape.length;
  }

  /**
   * Checks that tensors fill the data section without holes or overlaps, as the format requires.
   * A tensor without elements may lie at any border.
   */
  private *checkCoverage(): Generator<void> {
    const starts = new RecordTable(this.size);
    const startingAt = (at: number): number | null =>
      starts.find(hashNumber(at), (i) => this.begin[i] === at);
    for (let i = 0; i < this.size; i++) {
      if (i % 64 === 63) yield;
      const at = this.begin[i] as number;
      if (at === this.end[i]) continue;
      if (startingAt(at) !== null) throw this.misplaced(i, at + 1);
      starts.add(hashNumber(at), i);
    }
    const covered = new Uint8Array(this.size);
    let end = 0;
    for (let i = startingAt(0), steps = 0; i !== null; i = startingAt(end), steps++) {
      covered[i] = 1;
      end = this.end[i] as number;
      if (steps % 64 === 63) yield;
    }
    for (let i = 0; i < this.size; i++) {
      if (i % 64 === 63) yield;
      const at = this.begin[i] as number;
      const fits = at === this.end[i] ? at === end || startingAt(at) !== null : covered[i] === 1;
      if (!fits) throw this.misplaced(i, end);
    }
    if (end !== this.dataBytes)
      throw this.bad(`its tensors end at byte ${end} of a data section of ${this.dataBytes}`);
  }

  private misplaced(i: number, end: number): CheckpointError {
    const [tensor, begin] = [this.nameOf(i), this.begin[i] as number];
    const where = begin < end ? 'inside the one before' : `leaving a hole from ${end}`;
    return this.bad(`tensor "${tensor}" starts at byte ${begin}, ${where}`, { tensor, begin });
  }
}
