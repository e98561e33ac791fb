/** The server's side of one authenticated client. */
import type { Socket } from 'node:net';
import { type MessageReader, sendMessage } from './connection.js';
import type { KeyValueTable, StoreReply } from './key-value-table.js';
import { decodeRequest, encodeFailure, encodeReply, type StoreRequest } from './protocol.js';

/** Above this many bytes of unread replies, the client's further requests wait. */
const MOST_QUEUED_BYTES = 1 << 20;

/**
 * Carries out a client's requests in order. A failed request is answered with its error; open waits
 * are dropped when the client disconnects. Nothing is thrown: an error that cannot be sent ends the
 * connection.
 */
export class ClientSession {
  private readonly socket: Socket;
  private readonly reader: MessageReader;
  private readonly table: KeyValueTable;
  private readonly onFull: () => void;
  /** Cancels each open wait. */
  private readonly waits = new Set<() => void>();
  private isFull = false;

  /** @param onFull - called when unread replies exceed the limit */
  constructor(socket: Socket, reader: MessageReader, table: KeyValueTable, onFull: () => void) {
    this.socket = socket;
    this.reader = reader;
    this.table = table;
    this.onFull = onFull;
    socket.on('data', (chunk: Buffer) => {
      reader.push(chunk);
      this.serve();
    });
    socket.on('drain', () => {
      this.isFull = false;
      this.serve();
      if (!this.isFull) socket.resume();
    });
    socket.on('close', () => {
      for (const drop of this.waits) drop();
      this.waits.clear();
    });
  }

  /** Bytes of replies that the client has not read. */
  get queued(): number {
    return this.socket.writableLength;
  }

  destroy(): void {
    this.socket.destroy();
  }

  private serve(): void {
    try {
      while (!this.isFull && !this.socket.destroyed) {
        const message = this.reader.next();
        if (message === null) return;
        this.answer(message.id, message.body);
      }
    } catch {
      this.socket.destroy(); // after a message that is too long, the next cannot be found
    }
  }

  private answer(id: number, body: Buffer): void {
    try {
      const request = decodeRequest(body);
      if (request.op === 'wait') this.wait(id, request);
      else this.reply(id, this.table.apply(request));
    } catch (error) {
      this.send(id, encodeFailure(error));
    }
  }

  private wait(id: number, { keys, timeoutMs }: StoreRequest & { op: 'wait' }): void {
    let drop: (() => void) | null = null;
    drop = this.table.waitFor(keys, timeoutMs, false, (error) => {
      if (drop !== null) this.waits.delete(drop);
      if (error === null) this.reply(id, true);
      else this.send(id, encodeFailure(error));
    });
    if (drop !== null) this.waits.add(drop);
  }

  private reply(id: number, reply: StoreReply): void {
    this.send(id, ...encodeReply(reply));
  }

  private send(id: number, ...parts: Buffer[]): void {
    const { socket } = this;
    if (!socket.writable) return;
    try {
      sendMessage(socket, id, ...parts);
    } catch (error) {
      sendMessage(socket, id, encodeFailure(error));
    }
    if (this.isFull || socket.writableLength <= MOST_QUEUED_BYTES) return;
    this.isFull = true;
    socket.pause();
    this.onFull();
  }
}
