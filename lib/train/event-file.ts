/**
 * The event files that TensorBoard reads: records of an `Event` message each, with checksums. Of its
 * messages this writes numbers alone, five fields that a library of protocol buffers would encode
 * in no fewer lines.
 */

/** A number at a step. */
export interface Scalar {
  readonly tag: string;
  readonly value: number;
}

/** The first record of a file: its version. `time`: seconds since 1970. */
export const versionRecord = (time: number): Buffer =>
  record(Buffer.concat([wallTime(time), field(FILE_VERSION, Buffer.from('brain.Event:2'))]));

/** The record of some numbers of a step. */
export function scalarsRecord(time: number, step: number, scalars: readonly Scalar[]): Buffer {
  const values = scalars.map(({ tag, value }) => {
    const simple = Buffer.alloc(5);
    simple[0] = (SIMPLE_VALUE << 3) | FIXED_32;
    simple.writeFloatLE(value, 1);
    return field(VALUE, Buffer.concat([field(TAG, Buffer.from(tag)), simple]));
  });
  const atStep = step === 0 ? [] : [Buffer.of(STEP << 3, ...varint(step))];
  return record(Buffer.concat([wallTime(time), ...atStep, field(SUMMARY, Buffer.concat(values))]));
}

// Numbers of fields: of Event, of Summary, of Summary.Value.
const [WALL_TIME, STEP, FILE_VERSION, SUMMARY] = [1, 2, 3, 5];
const VALUE = 1;
const [TAG, SIMPLE_VALUE] = [1, 2];
// How a field is written.
const [FIXED_64, BYTES, FIXED_32] = [1, 2, 5];

function wallTime(seconds: number): Buffer {
  const bytes = Buffer.alloc(9);
  bytes[0] = (WALL_TIME << 3) | FIXED_64;
  bytes.writeDoubleLE(seconds, 1);
  return bytes;
}

const field = (number: number, content: Buffer): Buffer =>
  Buffer.concat([Buffer.of((number << 3) | BYTES, ...varint(content.length)), content]);

/** Seven bits a byte, lowest first. */
function varint(value: number): number[] {
  const bytes: number[] = [];
  let rest = value;
  for (; rest >= 128; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 128);
  return [...bytes, rest];
}

/** Length, its checksum, content, its checksum: a record of TFRecord files. */
function record(content: Buffer): Buffer {
  const bytes = Buffer.alloc(12 + content.length + 4);
  bytes.writeBigUInt64LE(BigInt(content.length));
  bytes.writeUInt32LE(masked(crc32c(bytes.subarray(0, 8))), 8);
  content.copy(bytes, 12);
  bytes.writeUInt32LE(masked(crc32c(content)), 12 + content.length);
  return bytes;
}

/** Rotated and shifted, because a checksum of data with checksums in it would say little. */
const masked = (crc: number): number => (((crc >>> 15) | (crc << 17)) + 0xa282ead8) >>> 0;

/** The remainders of all bytes by Castagnoli's polynomial; `node:zlib` has that of Ethernet. */
const REMAINDERS = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1;
  return crc;
});

function crc32c(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = (crc >>> 8) ^ (REMAINDERS[(crc ^ byte) & 255] as number);
  return ~crc >>> 0;
}
