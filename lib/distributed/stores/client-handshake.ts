/**
 * Connects a TCPStore to its server: opens the socket, authenticates both sides, and then hands
 * each message to the store.
 */
import { connect, type Socket } from 'node:net';
import { StoreError, TimeoutError } from '../../core/errors.js';
import {
  GREETING_BYTES,
  isLoopback,
  isProof,
  NONCE_BYTES,
  newNonce,
  proof,
} from './authentication.js';
import { MessageReader, sendMessage } from './connection.js';
import { findSecret } from './own-secret.js';
import { LONGEST_MESSAGE } from './protocol.js';

interface ConnectionOptions {
  readonly host: string;
  readonly port: number;
  /** Null: the secret that the server has published for this user. */
  readonly secret: string | null;
  /** Whether the server runs in this process. */
  readonly isServer: boolean;
  readonly deadline: number;
  readonly onMessage: (id: number, body: Buffer, socket: Socket) => void;
  /** Called when an authenticated connection closes. */
  readonly onClose: (cause: Error | null) => void;
}

/** Makes one attempt. `authenticated` rejects if the server does not answer or refuses. */
export function connectOnce(options: ConnectionOptions): {
  readonly socket: Socket;
  readonly authenticated: Promise<Socket>;
} {
  const { host, port, isServer } = options;
  const socket = connect({
    host: isLoopback(host) || !isServer ? host : '127.0.0.1',
    port,
    noDelay: true,
  });
  return { socket, authenticated: authenticate(socket, options) };
}

function authenticate(
  socket: Socket,
  { host, port, secret: given, deadline, onMessage, onClose }: ConnectionOptions,
): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const reader = new MessageReader(GREETING_BYTES);
    const nonce = newNonce();
    let expected: Buffer | null = null;
    let trusted = false;
    const timer = setTimeout(
      () => socket.destroy(new Error('no answer')),
      Math.max(1, deadline - Date.now()),
    );
    const greet = (id: number, body: Buffer): void => {
      if (expected === null) {
        if (id !== 0 || body.length !== NONCE_BYTES)
          return void socket.destroy(strangeServer(host, port));
        const secret = given ?? findSecret(port);
        expected = proof(secret, 'server', nonce, body);
        sendMessage(socket, 0, Buffer.concat([nonce, proof(secret, 'client', nonce, body)]));
        return;
      }
      if (!isProof(body, expected)) return void socket.destroy(wrongSecret(host, port));
      trusted = true;
      reader.limit = LONGEST_MESSAGE;
      clearTimeout(timer);
      socket.unref();
      resolve(socket);
    };
    socket.on('data', (chunk: Buffer) => {
      try {
        reader.push(chunk);
        for (let message = reader.next(); message !== null; message = reader.next()) {
          if (trusted) onMessage(message.id, message.body, socket);
          else greet(message.id, message.body);
        }
      } catch (error) {
        // A first message that is too long comes from a server that is not a store.
        socket.destroy(trusted || reader.held === 0 ? (error as Error) : strangeServer(host, port));
      }
    });
    let cause: Error | null = null;
    socket.on('error', (error) => {
      cause = error;
    });
    socket.on('close', () => {
      clearTimeout(timer);
      if (trusted) onClose(cause);
      // A server with too many unauthenticated connections also closes without an answer; the
      // store then tries again.
      else reject(cause ?? new Error('the connection was closed before it was answered'));
    });
  });
}

export function unreachable(
  host: string,
  port: number,
  timeoutMs: number,
  cause: Error,
): TimeoutError {
  return new TimeoutError(
    `TCPStore: no server at ${host}:${port} within ${timeoutMs} ms: ${cause.message}. ` +
      'Is the process with { isServer: true } running?',
    { host, port, timeoutMs },
    { cause },
  );
}

export function outOfDescriptors(host: string, port: number, cause: Error): StoreError {
  return new StoreError(
    `TCPStore: cannot connect to ${host}:${port}: this process may open no more files ` +
      `(${cause.message}). Raise the limit: ulimit -n.`,
    { host, port },
    { cause },
  );
}

function wrongSecret(host: string, port: number): StoreError {
  return new StoreError(
    `TCPStore: ${host}:${port} has a different secret. All ranks need the same ` +
      'SHARDWISE_STORE_SECRET, or { secret }.',
    { host, port },
  );
}

function strangeServer(host: string, port: number): StoreError {
  return new StoreError(`TCPStore: the server at ${host}:${port} is not a store of this library`, {
    host,
    port,
  });
}
