/**
 * The wire format of commands and replies, on sockets and in files. Little endian; a field is its
 * length in 4 bytes, then its bytes.
 */
import { StoreError, TimeoutError } from '../../core/errors.js';
import { LONGEST_TIMEOUT_MS } from '../../core/options.js';
import type { StoreCommand, StoreReply } from './key-value-table.js';

const opcodes = [
  'set',
  'append',
  'add',
  'compareSet',
  'get',
  'delete',
  'check',
  'count',
  'wait',
] as const;

/** A command, or a wait for keys that the server performs for its client. */
export type StoreRequest =
  | StoreCommand
  | { readonly op: 'wait'; readonly keys: readonly string[]; readonly timeoutMs: number };

/**
 * Bytes of the longest message. A longer one is refused before anything is allocated for it.
 */
export const LONGEST_MESSAGE = 64 << 20;
/** Bytes of the longest value: a reply has one byte more, its kind. */
export const LONGEST_VALUE = LONGEST_MESSAGE - 1;
/**
 * Most fields of a message, and so most keys of a request: an empty field takes 4 bytes of a
 * message but an object in memory.
 */
const MOST_FIELDS = 1 << 17;
const LONGEST_ERROR_TEXT = 4_000;
const LONGEST_ERROR_DETAILS = 1 << 16;

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

/** @throws StoreError for lengths that do not fit, and for too many fields */
export function decodeFields(bytes: Buffer): Buffer[] {
  const fields: Buffer[] = [];
  let at = 0;
  while (at < bytes.length) {
    const end = at + 4 <= bytes.length ? at + 4 + bytes.readUInt32LE(at) : Number.POSITIVE_INFINITY;
    if (end > bytes.length) throw malformed('a field reaches beyond its message');
    if (fields.length === MOST_FIELDS) throw malformed(`it has more than ${MOST_FIELDS} fields`);
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

/** @throws StoreError for bytes that do not form a request */
export function decodeRequest(bytes: Buffer): StoreRequest {
  const op = opcodes[bytes[0] ?? -1];
  const fields = decodeFields(bytes.subarray(1));
  const [first, second, third] = fields;
  const key = first?.toString() ?? '';
  const expect = (count: number): void => {
    if (fields.length !== count)
      throw malformed(`"${op}" has ${fields.length} fields instead of ${count}`);
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
      return {
        op,
        key,
        expected: Buffer.from(second as Buffer),
        desired: Buffer.from(third as Buffer),
      };
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
      return { op, timeoutMs: timeoutOf(first), keys: fields.slice(1).map(String) };
    default:
      throw malformed(`there is no request ${bytes[0]}`);
  }
}

function wholeNumber(field: Buffer): number {
  const number = Number(field.toString());
  if (!Number.isSafeInteger(number)) throw malformed('a number is not an integer');
  return number;
}

function timeoutOf(field: Buffer): number {
  const timeoutMs = wholeNumber(field);
  if (timeoutMs < 0 || timeoutMs > LONGEST_TIMEOUT_MS)
    throw malformed(`a timeout is ${timeoutMs} ms`);
  return timeoutMs;
}

/** The buffers of one reply; a value is not copied. */
export function encodeReply(reply: StoreReply): Buffer[] {
  if (reply === null) return [Buffer.from('n')];
  if (typeof reply === 'boolean') return [Buffer.from(reply ? 't' : 'f')];
  if (typeof reply === 'number') return [Buffer.from(`i${reply}`)];
  return [Buffer.from('v'), reply];
}

/** The reply of a failed request, shortened because its message may quote keys of any length. */
export function encodeFailure(error: unknown): Buffer {
  const { message, details = {} } = error as Error & { details?: unknown };
  const kind = error instanceof TimeoutError ? 'T' : 'E';
  const text =
    message.length > LONGEST_ERROR_TEXT ? `${message.slice(0, LONGEST_ERROR_TEXT)}…` : message;
  return Buffer.from(kind + JSON.stringify({ message: text, details: shortDetails(details) }));
}

function shortDetails(details: unknown): unknown {
  try {
    return JSON.stringify(details).length > LONGEST_ERROR_DETAILS ? {} : details;
  } catch {
    return {}; // longer than any string
  }
}

/**
 * @throws StoreError for bytes that do not form a reply, StoreError or TimeoutError if the server
 * reports a failure
 */
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
    case 'T':
    case 'E':
      throw decodeFailure(bytes);
    default:
      throw malformed('the kind of a reply is unknown');
  }
}

function decodeFailure(bytes: Buffer): StoreError | TimeoutError {
  const { message, details } = JSON.parse(bytes.subarray(1).toString()) as {
    message: string;
    details: Record<string, unknown>;
  };
  return bytes[0] === 'T'.charCodeAt(0)
    ? new TimeoutError(message, details)
    : new StoreError(message, details);
}

function malformed(what: string): StoreError {
  return new StoreError(`store: malformed message: ${what}. Do both sides run the same version?`, {
    what,
  });
}
