/**
 * Scans the JSON of a header token by token. No step takes time in proportion to the input: methods
 * that may take long are generators that yield.
 */
import { isUtf8 } from 'node:buffer';

/** Maximal bytes between two yields, except for one short token. */
export const STEP_BYTES = 4096;
/** Maximal bytes of the name of a tensor or metadata entry. */
const MAX_NAME_BYTES = 65_536;
const UTF8_STEP = 2 ** 18;
/** Maximal nesting of values of unknown fields; the limit of the reference implementation. */
const MAX_DEPTH = 128;

export const [OPEN, CLOSE, OPEN_LIST, CLOSE_LIST, QUOTE, COMMA, COLON] = [
  0x7b, 0x7d, 0x5b, 0x5d, 0x22, 0x2c, 0x3a,
] as const;
const BACKSLASH = 0x5c;
const simpleEscapes = new Set([...'"\\/bfnrt'].map((c) => c.charCodeAt(0)));
const literal = /^(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)$/;
const MAX_LITERAL = 64;

/** Whether a byte may occur in a number, true, false or null. */
const isLiteral = (byte: number | undefined): boolean =>
  byte !== undefined &&
  ((byte >= 0x30 && byte <= 0x39) ||
    (byte >= 0x61 && byte <= 0x7a) ||
    byte === 0x2b ||
    byte === 0x2d ||
    byte === 0x2e ||
    byte === 0x45);

/** The position of a string in the bytes, without its quotes. */
export interface Text {
  readonly start: number;
  readonly end: number;
  readonly escaped: boolean;
}

/** A cursor in JSON. It throws plain Errors that name the byte; the caller adds the file. */
export class JsonScanner {
  at = 0;
  readonly bytes: Uint8Array;
  private readonly buffer: Buffer;
  private yieldedAt = 0;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
    this.buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  /** Whether {@link STEP_BYTES} have passed since this was last true. */
  get stepDone(): boolean {
    if (this.at - this.yieldedAt < STEP_BYTES) return false;
    this.yieldedAt = this.at;
    return true;
  }

  fail(what: string): Error {
    return new Error(`${what} at byte ${this.at}`);
  }

  /** Checks all bytes; later reads assume UTF-8. @throws Error if they are not UTF-8 */
  *checkUtf8(): Generator<void> {
    const { bytes } = this;
    for (let start = 0; start < bytes.length; ) {
      let end = Math.min(bytes.length, start + UTF8_STEP);
      for (
        let back = 0;
        back < 3 && end < bytes.length && ((bytes[end] as number) & 0xc0) === 0x80;
        back++
      )
        end--;
      if (!isUtf8(bytes.subarray(start, end)))
        throw new Error(`bytes ${start} to ${end} are not valid UTF-8`);
      start = end;
      yield;
    }
  }

  /** Skips whitespace. Returns the next byte, or undefined at the end. */
  *next(): Generator<void, number | undefined> {
    for (; ; this.at++) {
      const byte = this.bytes[this.at];
      if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) return byte;
      if (this.stepDone) yield;
    }
  }

  /** Skips whitespace and one byte. */
  *expect(byte: number): Generator<void> {
    if (this.bytes[this.at] !== byte && (yield* this.next()) !== byte)
      throw this.fail(`expected ${String.fromCharCode(byte)}`);
    this.at++;
  }

  /** Skips a comma (returns true) or the end of a list or an object (returns false). */
  *more(close: number): Generator<void, boolean> {
    const byte = yield* this.next();
    if (byte !== COMMA && byte !== close)
      throw this.fail(`expected , or ${String.fromCharCode(close)}`);
    this.at++;
    return byte === COMMA;
  }

  /** Skips a string. */
  *string(): Generator<void, Text> {
    yield* this.expect(QUOTE);
    const start = this.at;
    let escaped = false;
    for (;;) {
      const byte = this.bytes[this.at];
      if (byte === QUOTE) return { start, end: this.at++, escaped };
      if (byte === undefined || byte < 0x20)
        throw this.fail(
          byte === undefined ? 'a string without an end' : 'a control character in a string',
        );
      if (byte === BACKSLASH) {
        escaped = true;
        this.escape();
      } else this.at++;
      if (this.stepDone) yield;
    }
  }

  /** Skips the name of a member and its colon. */
  *name(): Generator<void, Text> {
    const name = yield* this.string();
    if (name.end - name.start > MAX_NAME_BYTES)
      throw this.fail(
        `a name of ${name.end - name.start} bytes, more than ${MAX_NAME_BYTES} are refused,`,
      );
    yield* this.expect(COLON);
    return name;
  }

  /**
   * Reads a list of at most `most` whole numbers from 0 up that JavaScript represents exactly; null
   * for anything else.
   */
  *counts(most: number): Generator<void, number[] | null> {
    if ((yield* this.next()) !== OPEN_LIST) return null;
    this.at++;
    const counts: number[] = [];
    if ((yield* this.next()) === CLOSE_LIST) {
      this.at++;
      return counts;
    }
    for (;;) {
      const count = this.count(yield* this.next());
      if (count === null || counts.push(count) > most) return null;
      const byte = yield* this.next();
      this.at++;
      if (byte === CLOSE_LIST) return counts;
      if (byte !== COMMA) return null;
    }
  }

  private count(first: number | undefined): number | null {
    if (first === undefined || first < 0x30 || first > 0x39) return null;
    let value = 0;
    for (const start = this.at; ; this.at++) {
      const digit = (this.bytes[this.at] ?? 0) - 0x30;
      if (digit < 0 || digit > 9) return value;
      value = value * 10 + digit;
      if (!Number.isSafeInteger(value) || (first === 0x30 && this.at > start)) return null;
    }
  }

  /** Skips any value. */
  *value(): Generator<void> {
    const open: number[] = []; // closing bytes of the enclosing objects and lists
    for (;;) {
      if (this.stepDone) yield;
      const first = yield* this.next();
      if (first === QUOTE) yield* this.string();
      else if (first === OPEN || first === OPEN_LIST) {
        this.at++;
        if (open.push(first + 2) > MAX_DEPTH)
          throw this.fail(`values nested deeper than ${MAX_DEPTH}`);
        if ((yield* this.next()) !== first + 2) {
          if (first === OPEN) yield* this.name();
          continue;
        }
        this.at++;
        open.pop();
      } else this.literal();
      while (open.length > 0 && !(yield* this.more(open.at(-1) as number))) open.pop();
      if (open.length === 0) return;
      if (open.at(-1) === CLOSE) yield* this.name();
    }
  }

  private literal(): void {
    let end = this.at;
    while (end - this.at <= MAX_LITERAL && isLiteral(this.bytes[end])) end++;
    if (!literal.test(this.buffer.toString('latin1', this.at, end))) throw this.fail('no value');
    this.at = end;
  }

  private escape(): void {
    const kind = this.bytes[this.at + 1] as number;
    if (simpleEscapes.has(kind)) {
      this.at += 2;
      return;
    }
    const unit = this.unit(this.at);
    if (unit === null || (unit >= 0xdc00 && unit <= 0xdfff))
      throw this.fail('a wrong escape in a string');
    this.at += 6;
    if (unit < 0xd800 || unit > 0xdbff) return;
    const low = this.unit(this.at);
    if (low === null || low < 0xdc00 || low > 0xdfff)
      throw this.fail('half of a surrogate pair in a string');
    this.at += 6;
  }

  /** The code unit of `\uXXXX`, or null. */
  private unit(at: number): number | null {
    const text = this.buffer.toString('latin1', at, at + 6);
    return /^\\u[0-9a-fA-F]{4}$/.test(text) ? Number.parseInt(text.slice(2), 16) : null;
  }

  /** The value of a string. */
  read({ start, end, escaped }: Text): string {
    const text = this.buffer.toString('utf8', start, end);
    return escaped ? (JSON.parse(`"${text}"`) as string) : text;
  }

  /**
   * The value at a position, for messages: the part that was scanned, or its first list.
   */
  excerpt(start: number): string {
    const text = this.buffer.toString('utf8', start, start + 100);
    const shown =
      this.bytes[start] === QUOTE
        ? text.slice(0, this.at - start)
        : (/^[^\]},]*(?:,[^\]}"]*)*\]?/.exec(text)?.[0] ?? '');
    return shown.length < 100 ? shown : `${shown}...`;
  }
}
