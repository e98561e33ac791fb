/**
 * The safetensors format: the length of the header, the header, then raw little-endian bytes. Every
 * reader must treat the file as hostile.
 */
import {
  bfloat16,
  bool,
  type DType,
  float16,
  float32,
  float64,
  int8,
  int16,
  int32,
  int64,
  uint8,
} from '../core/dtype.js';
import { CheckpointError } from '../core/errors.js';

const MAX_HEADER_BYTES = 100_000_000; // the limit of the reference implementation

/** Dtypes by their names in the format. */
export const byCode = new Map<string, DType>([
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
  return new CheckpointError(`${file}: not a valid safetensors file: ${what}`, {
    file,
    ...details,
  });
}

/** Length of the JSON header, from the first eight bytes. @throws CheckpointError */
export function headerLength(file: string, first: Uint8Array, fileBytes: number): number {
  if (fileBytes < 8 || first.length < 8)
    throw bad(file, `it has ${fileBytes} bytes, the header length alone takes 8`);
  if (first[0] === 0x50 && first[1] === 0x4b)
    throw bad(
      file,
      'it is a zip archive, such as torch.save writes; save it with save_file of safetensors.torch',
    );
  const length = Number(new DataView(first.buffer, first.byteOffset, 8).getBigUint64(0, true));
  if (length > MAX_HEADER_BYTES)
    throw bad(file, `its header claims ${length} bytes, at most ${MAX_HEADER_BYTES} are allowed`);
  if (8 + length > fileBytes)
    throw bad(file, `its header claims ${length} bytes, the file has ${fileBytes}`);
  return length;
}

/** A tensor that is going to be written. */
interface Planned {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly bytes: number;
}

/**
 * The bytes of a header, padded so that the data section is aligned to 8. @throws CheckpointError
 * if it is larger than readers accept
 */
export function encodeHeader(
  file: string,
  tensors: readonly Planned[],
  metadata: Record<string, string>,
): Uint8Array {
  const header: [string, unknown][] = [];
  if (Object.keys(metadata).length > 0) header.push(['__metadata__', metadata]);
  let at = 0;
  for (const { name, dtype, shape, bytes } of tensors) {
    header.push([name, { dtype: codeOf.get(dtype), shape, data_offsets: [at, at + bytes] }]);
    at += bytes;
  }
  const json = new TextEncoder().encode(JSON.stringify(Object.fromEntries(header)));
  if (json.length > MAX_HEADER_BYTES)
    throw new CheckpointError(
      `${file}: its header would take ${json.length} bytes, more than ${MAX_HEADER_BYTES} are ` +
        'refused',
      { file },
    );
  const padded = new Uint8Array(8 + Math.ceil(json.length / 8) * 8).fill(0x20);
  new DataView(padded.buffer).setBigUint64(0, BigInt(padded.length - 8), true);
  padded.set(json, 8);
  return padded;
}
