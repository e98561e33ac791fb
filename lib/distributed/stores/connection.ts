/**
 * Messages over a socket. Each has a length (4 bytes), a request number that the answer repeats
 * (4 bytes), and a body.
 */
import type { Socket } from 'node:net';
import { StoreError } from '../../core/errors.js';
import { LONGEST_MESSAGE } from './protocol.js';

const HEAD_BYTES = 8;
const NOTHING: Buffer = Buffer.alloc(0);

export interface Message {
  readonly id: number;
  /** A view that stays valid while it is referenced; nobody writes into it. */
  readonly body: Buffer;
}

/**
 * Splits the bytes of a socket into messages. Memory grows with the bytes received, never with the
 * length that a message claims.
 */
export class MessageReader {
  /** Bytes of the longest message that is accepted. */
  limit: number;
  private buffer = NOTHING;
  private start = 0;
  private end = 0;

  constructor(limit = LONGEST_MESSAGE) {
    this.limit = limit;
  }

  /** Bytes received that do not form a message yet. */
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
   * The next message; null while it is incomplete. @throws StoreError if it is too long
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
    // an idle connection keeps no buffer
    if (this.held === 0) [this.buffer, this.start, this.end] = [NOTHING, 0, 0];
    return message;
  }
}

/** @throws StoreError if the message is too long */
export function checkLength(length: number): void {
  if (length > LONGEST_MESSAGE)
    throw new StoreError(`store: a value of ${length} bytes is longer than ${LONGEST_MESSAGE}`, {
      length,
      limit: LONGEST_MESSAGE,
    });
}

/**
 * Sends the parts as one message. @throws StoreError, with nothing sent, if it is too long
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
