/** Objects of the language that are values: lists, maps, sets, dates, bytes, typed arrays. */
import { Buffer } from 'node:buffer';
import { types } from 'node:util';

/**
 * The class of such an object: `Map`, `Float32Array`. Null for all others, and for instances of
 * subclasses, which may hold more.
 */
export function builtInOf(value: object): string | null {
  const name = classOf(value);
  return name === value.constructor?.name ? name : null;
}

/** Objects of another realm, such as that of a sandboxed test, have classes of their own. */
function classOf(value: object): string | null {
  if (Array.isArray(value)) return 'Array';
  if (types.isMap(value)) return 'Map';
  if (types.isSet(value)) return 'Set';
  if (types.isDate(value)) return 'Date';
  if (types.isArrayBuffer(value)) return 'ArrayBuffer';
  if (Buffer.isBuffer(value)) return 'Buffer';
  return ArrayBuffer.isView(value) ? (value as Uint8Array)[Symbol.toStringTag] : null;
}

export const isMap = (value: unknown): value is Map<unknown, unknown> =>
  types.isMap(value) && builtInOf(value) === 'Map';

const BYTES = /^(Buffer|ArrayBuffer|DataView|(Int|Uint|Float|BigInt|BigUint)\d+(Clamped)?Array)$/;

/** Whether objects of a class are bytes: those of {@link base64Of} and {@link bytesAs}. */
export const isOfBytes = (kind: string): boolean => BYTES.test(kind);

export function base64Of(value: object): string {
  const bytes = ArrayBuffer.isView(value)
    ? Buffer.from(value.buffer, value.byteOffset, value.byteLength)
    : Buffer.from(value as ArrayBuffer);
  return bytes.toString('base64');
}

/** Bytes as an object of a class; null if this runtime has no such class. */
export function bytesAs(kind: string, base64: string): unknown {
  const bytes = Buffer.from(base64, 'base64');
  if (kind === 'Buffer') return bytes;
  const { buffer } = Uint8Array.from(bytes); // memory of its own, aligned
  if (kind === 'ArrayBuffer') return buffer;
  const View = isOfBytes(kind) ? (globalThis as Record<string, unknown>)[kind] : null;
  if (typeof View !== 'function') return null;
  return new (View as new (buffer: ArrayBuffer) => unknown)(buffer);
}

/** A copy of a set, a date or bytes that their owner may change; all else as it is. */
export function copyOf(value: object): object {
  if (types.isSet(value)) return new Set(value);
  if (Buffer.isBuffer(value)) return Buffer.from(value);
  const kind = builtInOf(value) ?? '';
  return kind === 'Date' || isOfBytes(kind) ? structuredClone(value) : value;
}
