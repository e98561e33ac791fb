/** Commands and replies as bytes: what goes over sockets and into files. Little endian; a field is its length in 4 bytes, then its bytes. */
import { StoreError } from '../../core/errors.js';
import type { StoreCommand, StoreReply } from './key-value-table.js';

const opcodes = ['set', 'append', 'add', 'compareSet', 'get', 'delete', 'check', 'count', 'wait'] as const;

/** A command, or the wait for keys that a server does for its client. */
export type StoreRequest = StoreCommand | { readonly op: 'wait'; readonly keys: readonly string[]; readonly timeoutMs: number };

/** Bytes of the longest message: a hostile length is refused before anything is allocated for it. */
export const LONGEST_MESSAGE = 64 << 20;

export function encodeFields(fields: readonly (Uint8Array | string)[]): Buffer {
  const parts: Uint8Array[] = [];
  for (const field of fields) {
    const bytes = typeof field === 'string' ? Buffer.from(field) : field;
    const length = Buffer.alloc(4);
    length.writeUInt32LE(bytes.length);
    parts.push(length, bytes);
  }
  return Buffer.concat(parts);
}

/** @throws StoreError for lengths that do not fit */
export function decodeFields(bytes: Buffer): Buffer[] {
  const fields: Buffer[] = [];
  let at = 0;
  while (at < bytes.length) {
    const end = at + 4 <= bytes.length ? at + 4 + bytes.readUInt32LE(at) : Number.POSITIVE_INFINITY;
    if (end > bytes.length) throw malformed('a field reaches beyond its message');
    fields.push(bytes.subarray(at + 4, end));
    at = end;
  }
  return fields;
}

export function encodeRequest(request: StoreRequest): Buffer {
  return Buffer.concat([Buffer.of(opcodes.indexOf(request.op)), encodeFields(fieldsOf(request))]);
}

function fieldsOf(request: StoreRequest): (Uint8Array | string)[] {
  switch (request.op) {
    case 'set':
    case 'append':
      return [request.key, request.value];
    case 'add':
      return [request.key, String(request.amount)];
    case 'compareSet':
      return [request.key, request.expected, request.desired];
    case 'get':
    case 'delete':
      return [request.key];
    case 'check':
      return [...request.keys];
    case 'count':
      return [];
    case 'wait':
      return [String(request.timeoutMs), ...request.keys];
  }
}

/** @throws StoreError for bytes that are no request */
export function decodeRequest(bytes: Buffer): StoreRequest {
  const op = opcodes[bytes[0] ?? -1];
  const fields = decodeFields(bytes.subarray(1));
  const [first, second, third] = fields;
  const key = first?.toString() ?? '';
  const expect = (count: number): void => {
    if (fields.length !== count) throw malformed(`"${op}" has ${fields.length} fields instead of ${count}`);
  };
  switch (op) {
    case 'set':
    case 'append':
      expect(2);
      return { op, key, value: Buffer.from(second as Buffer) };
    case 'add':
      expect(2);
      return { op, key, amount: wholeNumber(second as Buffer) };
    case 'compareSet':
      expect(3);
      return { op, key, expected: Buffer.from(second as Buffer), desired: Buffer.from(third as Buffer) };
    case 'get':
    case 'delete':
      expect(1);
      return { op, key };
    case 'check':
      return { op, keys: fields.map(String) };
    case 'count':
      expect(0);
      return { op };
    case 'wait':
      if (first === undefined) throw malformed('"wait" has no timeout');
      return { op, timeoutMs: wholeNumber(first), keys: fields.slice(1).map(String) };
    default:
      throw malformed(`there is no request ${bytes[0]}`);
  }
}

function wholeNumber(field: Buffer): number {
  const number = Number(field.toString());
  if (!Number.isSafeInteger(number)) throw malformed('a number is none');
  return number;
}

export function encodeReply(reply: StoreReply): Buffer {
  if (reply === null) return Buffer.from('n');
  if (typeof reply === 'boolean') return Buffer.from(reply ? 't' : 'f');
  if (typeof reply === 'number') return Buffer.from(`i${reply}`);
  return Buffer.concat([Buffer.from('v'), reply]);
}

/** @throws StoreError for bytes that are no reply, and the error that a server answered with */
export function decodeReply(bytes: Buffer): StoreReply {
  const rest = bytes.subarray(1);
  switch (bytes.subarray(0, 1).toString()) {
    case 'n':
      return null;
    case 't':
      return true;
    case 'f':
      return false;
    case 'i':
      return wholeNumber(rest);
    case 'v':
      return Buffer.from(rest);
    default:
      throw malformed('a reply is none');
  }
}

function malformed(what: string): StoreError {
  return new StoreError(`store: malformed message: ${what}. Do both sides run the same version?`, { what });
}
