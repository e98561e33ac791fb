/**
 * A client of a TCPStore that sends arbitrary bytes, for tests of hostile clients. Only on this
 * machine.
 */
import { connect, type Socket } from 'node:net';
import { newNonce, proof } from '../../../lib/distributed/stores/authentication.js';
import { MessageReader } from '../../../lib/distributed/stores/connection.js';

export const HOST = '127.0.0.1';

/** A connection whose errors nobody hears of. */
export function connectRaw(port: number, host = HOST): Socket {
  const socket = connect({ port, host });
  socket.on('error', () => {});
  return socket;
}

export const closed = (socket: Socket): Promise<void> =>
  new Promise((resolve) => (socket.closed ? resolve() : socket.once('close', () => resolve())));

/** Bytes of a message; `length` is what it says of itself. */
export function frame(id: number, body: Buffer, length = body.length): Buffer {
  const head = Buffer.alloc(8);
  head.writeUInt32LE(length, 0);
  head.writeUInt32LE(id, 4);
  return Buffer.concat([head, body]);
}

/** The next message that comes; null once the connection is closed. */
export function nextBody(socket: Socket, reader: MessageReader): Promise<Buffer | null> {
  return new Promise((resolve) => {
    const found = reader.next();
    if (found !== null) return resolve(found.body);
    const hear = (chunk: Buffer): void => {
      reader.push(chunk);
      const message = reader.next();
      if (message === null) return;
      socket.off('data', hear);
      socket.off('close', end);
      resolve(message.body);
    };
    const end = (): void => resolve(null);
    socket.on('data', hear);
    socket.once('close', end);
    if (socket.closed) end();
  });
}

/**
 * A connection that has proved that it knows the secret, or has not if the secret is wrong: what it
 * says then, and what it hears.
 */
export async function prove(
  port: number,
  secret: string,
): Promise<{ socket: Socket; reader: MessageReader; answer: Buffer | null }> {
  const socket = connectRaw(port);
  const reader = new MessageReader();
  const serverNonce = (await nextBody(socket, reader)) ?? Buffer.alloc(16);
  const nonce = newNonce();
  socket.write(frame(0, Buffer.concat([nonce, proof(secret, 'client', nonce, serverNonce)])));
  return { socket, reader, answer: await nextBody(socket, reader) };
}
