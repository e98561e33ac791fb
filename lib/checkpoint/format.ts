/** The safetensors format: a checked header, then raw little-endian bytes. Every reader treats the file as hostile. */
import { inspect } from 'node:util';
import { bfloat16, bool, type DType, float16, float32, float64, int8, int16, int32, int64, uint8 } from '../core/dtype.js';
import { CheckpointError } from '../core/errors.js';

/** One tensor in a file. */
export interface TensorEntry {
  dtype: DType;
  shape: number[];
  /** Bytes from the start of the data section. */
  begin: number;
  end: number;
}

/** What the header says. */
export interface Header {
  metadata: Record<string, string>;
  tensors: Map<string, TensorEntry>;
  /** Where the data section starts in the file. */
  dataStart: number;
}

const MAX_HEADER_BYTES = 100_000_000; // the limit of the reference implementation
const MAX_DIMS = 16;

const byCode = new Map<string, DType>([
  ['F32', float32],
  ['F64', float64],
  ['F16', float16],
  ['BF16', bfloat16],
  ['I64', int64],
  ['I32', int32],
  ['I16', int16],
  ['I8', int8],
  ['U8', uint8],
  ['BOOL', bool],
]);
const codeOf = new Map([...byCode].map(([code, dtype]) => [dtype, code]));

function bad(file: string, what: string, details: Record<string, unknown> = {}): CheckpointError {
  return new CheckpointError(`${file}: not a valid safetensors file: ${what}`, { file, ...details });
}

/** Length of the JSON header, from the first eight bytes. @throws CheckpointError */
export function headerLength(file: string, first: Uint8Array, fileBytes: number): number {
  if (fileBytes < 8 || first.length < 8) throw bad(file, `it has ${fileBytes} bytes, the header length alone takes 8`);
  const length = Number(new DataView(first.buffer, first.byteOffset, 8).getBigUint64(0, true));
  if (length > MAX_HEADER_BYTES) throw bad(file, `its header claims ${length} bytes, more than ${MAX_HEADER_BYTES} are refused`);
  if (8 + length > fileBytes) throw bad(file, `its header claims ${length} bytes, the file has ${fileBytes}`);
  return length;
}

/** Checks and reads the JSON header. @throws CheckpointError naming the tensor and the values that do not fit */
export function parseHeader(file: string, json: Uint8Array, fileBytes: number): Header {
  let parsed: unknown;
  try {
    parsed = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(json));
  } catch (error) {
    throw bad(file, `its header is not JSON (${(error as Error).message})`);
  }
  if (!isRecord(parsed)) throw bad(file, 'its header is not a JSON object');
  const dataBytes = fileBytes - 8 - json.length;
  const header: Header = { metadata: {}, tensors: new Map(), dataStart: 8 + json.length };
  for (const [name, value] of Object.entries(parsed)) {
    if (name === '__metadata__') header.metadata = parseMetadata(file, value);
    else header.tensors.set(name, parseEntry(file, name, value, dataBytes));
  }
  checkCoverage(file, header.tensors, dataBytes);
  return header;
}

/** A value of a header for a message. It may be nested deeper than JSON.stringify survives, and as long as the file. */
function show(value: unknown): string {
  return inspect(value, { depth: 1, maxArrayLength: 20, maxStringLength: 60, breakLength: Number.POSITIVE_INFINITY }).slice(0, 100);
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function parseMetadata(file: string, value: unknown): Record<string, string> {
  if (!isRecord(value) || Object.values(value).some((v) => typeof v !== 'string')) throw bad(file, '__metadata__ must map strings to strings');
  return { ...(value as Record<string, string>) };
}

function parseEntry(file: string, name: string, value: unknown, dataBytes: number): TensorEntry {
  if (!isRecord(value)) throw bad(file, `tensor "${name}" is not described by an object`, { tensor: name });
  const dtype = byCode.get(value['dtype'] as string);
  if (dtype === undefined) throw bad(file, `tensor "${name}" has unknown dtype ${show(value['dtype'])}`, { tensor: name });
  const { shape, data_offsets: offsets } = value;
  const isCount = (n: unknown): n is number => typeof n === 'number' && Number.isSafeInteger(n) && n >= 0;
  if (!Array.isArray(shape) || shape.length > MAX_DIMS || !shape.every(isCount)) throw bad(file, `tensor "${name}" has shape ${show(shape)}`, { tensor: name });
  if (!Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(isCount)) throw bad(file, `tensor "${name}" has data_offsets ${show(offsets)}`, { tensor: name });
  const [begin, end] = offsets as [number, number];
  const bytes = (shape as number[]).reduce((n, s) => n * s, 1) * dtype.itemsize;
  if (end < begin || end > dataBytes) throw bad(file, `tensor "${name}" lies at bytes ${begin} to ${end} of a data section of ${dataBytes}`, { tensor: name, begin, end });
  if (end - begin !== bytes) throw bad(file, `tensor "${name}" of shape [${shape.join(', ')}] needs ${bytes} bytes, data_offsets give ${end - begin}`, { tensor: name });
  return { dtype, shape: shape as number[], begin, end };
}

/** The format demands that tensors fill the data section without holes or overlaps. */
function checkCoverage(file: string, tensors: ReadonlyMap<string, TensorEntry>, dataBytes: number): void {
  const sorted = [...tensors].sort(([, a], [, b]) => a.begin - b.begin || a.end - b.end);
  let at = 0;
  for (const [name, entry] of sorted) {
    if (entry.begin !== at)
      throw bad(file, `tensor "${name}" starts at byte ${entry.begin}, ${entry.begin < at ? 'inside the one before, which ends' : 'leaving a hole from'} at ${at}`, {
        tensor: name,
      });
    at = entry.end;
  }
  if (at !== dataBytes) throw bad(file, `its tensors end at byte ${at} of a data section of ${dataBytes}`);
}

/** A tensor to be written. */
interface Planned {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly bytes: number;
}

/** The header's bytes, padded so that the data section is aligned to 8. @throws CheckpointError for one that no reader takes */
export function encodeHeader(file: string, tensors: readonly Planned[], metadata: Record<string, string>): Uint8Array {
  const header: [string, unknown][] = [];
  if (Object.keys(metadata).length > 0) header.push(['__metadata__', metadata]);
  let at = 0;
  for (const { name, dtype, shape, bytes } of tensors) {
    header.push([name, { dtype: codeOf.get(dtype), shape, data_offsets: [at, at + bytes] }]);
    at += bytes;
  }
  const json = new TextEncoder().encode(JSON.stringify(Object.fromEntries(header)));
  if (json.length > MAX_HEADER_BYTES) throw new CheckpointError(`${file}: its header would take ${json.length} bytes, more than ${MAX_HEADER_BYTES} are refused`, { file });
  const padded = new Uint8Array(8 + Math.ceil(json.length / 8) * 8).fill(0x20);
  new DataView(padded.buffer).setBigUint64(0, BigInt(padded.length - 8), true);
  padded.set(json, 8);
  return padded;
}
