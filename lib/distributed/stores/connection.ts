/**
 * Messages over a socket: each is its length in 4 bytes, a number that its answer repeats in 4
 * bytes, and its bytes.
 */
import type { Socket } from 'node:net';
import { StoreError } from '../../core/errors.js';
import { LONGEST_MESSAGE } from './protocol.js';

const HEAD_BYTES = 8;
const NOTHING: Buffer = Buffer.alloc(0);

export interface Message {
  readonly id: number;
  /** Valid as long as it is held; nobody writes into it. */
  readonly body: Buffer;
}

/**
 * Cuts what comes from a socket into messages. Its memory grows with what has come, never with what
 * was announced.
 */
export class MessageReader {
  /** Bytes of the longest message that is taken. */
  limit: number;
  private buffer = NOTHING;
  private start = 0;
  private end = 0;

  constructor(limit = LONGEST_MESSAGE) {
    this.limit = limit;
  }

  /** Bytes that no message has been made of yet. */
  get held(): number {
    return this.end - this.start;
  }

  push(chunk: Buffer): void {
    if (this.held === 0) {
      [this.buffer, this.start, this.end] = [chunk, 0, chunk.length];
      return;
    }
    if (this.end + chunk.length > this.buffer.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(2 * this.held, this.held + chunk.length));
      this.buffer.copy(larger, 0, this.start, this.end);
      [this.buffer, this.start, this.end] = [larger, 0, this.held];
    }
    this.end += chunk.copy(this.buffer, this.end);
  }

  /**
   * The next message, or null while it is not whole. @throws StoreError for one that is too long
   */
  next(): Message | null {
    if (this.held < HEAD_BYTES) return null;
    const length = this.buffer.readUInt32LE(this.start);
    if (length > this.limit)
      throw new StoreError(`store: a message of ${length} bytes is longer than ${this.limit}`, {
        length,
        limit: this.limit,
      });
    const bodyStart = this.start + HEAD_BYTES;
    if (this.end < bodyStart + length) return null;
    const message = {
      id: this.buffer.readUInt32LE(this.start + 4),
      body: this.buffer.subarray(bodyStart, bodyStart + length),
    };
    this.start = bodyStart + length;
    // an idle connection holds nothing
    if (this.held === 0) [this.buffer, this.start, this.end] = [NOTHING, 0, 0];
    return message;
  }
}

/** @throws StoreError for a message that is too long */
export function checkLength(length: number): void {
  if (length > LONGEST_MESSAGE)
    throw new StoreError(`store: a value of ${length} bytes is longer than ${LONGEST_MESSAGE}`, {
      length,
      limit: LONGEST_MESSAGE,
    });
}

/**
 * Sends the parts as one message. @throws StoreError, with nothing sent, for one that is too long
 */
export function sendMessage(socket: Socket, id: number, ...parts: readonly Buffer[]): void {
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  checkLength(length);
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeUInt32LE(length, 0);
  head.writeUInt32LE(id, 4);
  socket.cork();
  socket.write(head);
  for (const part of parts) socket.write(part);
  socket.uncork();
}
