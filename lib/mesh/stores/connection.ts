/** Messages over a socket: each is its length in 4 bytes, a number that its answer repeats in 4 bytes, and its bytes. */
import type { Socket } from 'node:net';
import { StoreError } from '../../core/errors.js';
import { LONGEST_MESSAGE } from './store-protocol.js';

/** Cuts what comes from a socket into messages. */
export class MessageReader {
  private pending: Buffer[] = [];
  private size = 0;

  /** @throws StoreError for a message that is too long */
  push(chunk: Buffer, receive: (id: number, body: Buffer) => void): void {
    this.pending.push(chunk);
    this.size += chunk.length;
    while (this.size >= 8) {
      const head = this.peek(8);
      const length = head.readUInt32LE(0);
      if (length > LONGEST_MESSAGE) throw new StoreError(`store: a message of ${length} bytes is longer than ${LONGEST_MESSAGE}`, { length });
      if (this.size < 8 + length) return;
      const whole = this.peek(8 + length);
      this.pending = [whole.subarray(8 + length)];
      this.size -= 8 + length;
      receive(whole.readUInt32LE(4), whole.subarray(8, 8 + length));
    }
  }

  private peek(count: number): Buffer {
    if ((this.pending[0]?.length ?? 0) < count) this.pending = [Buffer.concat(this.pending)];
    return this.pending[0] as Buffer;
  }
}

/** @throws StoreError for a message that is too long */
export function sendMessage(socket: Socket, id: number, body: Buffer): void {
  if (body.length > LONGEST_MESSAGE) throw new StoreError(`store: a value of ${body.length} bytes is longer than ${LONGEST_MESSAGE}`, { length: body.length });
  const head = Buffer.alloc(8);
  head.writeUInt32LE(body.length, 0);
  head.writeUInt32LE(id, 4);
  socket.cork();
  socket.write(head);
  socket.write(body);
  socket.uncork();
}
