/** The process that keeps the keys of a TCPStore. */
import { createServer, type Server, type Socket } from 'node:net';
import { StoreError, TimeoutError } from '../../core/errors.js';
import { isLoopback, isProof, NONCE_BYTES, newNonce, proof } from './authentication.js';
import { MessageReader, sendMessage } from './connection.js';
import { KeyValueTable } from './key-value-table.js';
import { decodeRequest, encodeReply, type StoreRequest } from './store-protocol.js';

/** Strangers are sent away after this. */
const HANDSHAKE_MS = 5_000;

/** Serves a table to whoever knows the secret. Does not keep the process alive. */
export class TCPStoreServer {
  private readonly table = new KeyValueTable();
  private readonly sockets = new Set<Socket>();
  private readonly server: Server;
  /** Not of TypeScript alone: nothing that prints objects may show it. */
  readonly #secret: string;

  private constructor(server: Server, secret: string) {
    this.server = server;
    this.#secret = secret;
    server.on('connection', (socket) => this.greet(socket));
    server.unref();
  }

  /** @throws StoreError if the port cannot be had */
  static listen(host: string, port: number, secret: string): Promise<TCPStoreServer> {
    return new Promise((resolve, reject) => {
      const server = createServer({ noDelay: true });
      server.once('error', (error) => {
        reject(new StoreError(`TCPStore: cannot listen on ${host}:${port}: ${error.message}`, { host, port }, { cause: error }));
      });
      server.listen(isLoopback(host) ? { host, port } : { port }, () => resolve(new TCPStoreServer(server, secret)));
    });
  }

  get port(): number {
    return (this.server.address() as { port: number }).port;
  }

  close(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    return new Promise((resolve) => this.server.close(() => resolve()));
  }

  /** Server: its nonce. Client: its nonce and proof. Server: its proof. Then requests and replies. */
  private greet(socket: Socket): void {
    this.sockets.add(socket);
    socket.unref();
    socket.on('close', () => this.sockets.delete(socket));
    socket.on('error', () => socket.destroy());
    const nonce = newNonce();
    const deadline = setTimeout(() => socket.destroy(), HANDSHAKE_MS).unref();
    const reader = new MessageReader();
    let trusted = false;
    sendMessage(socket, 0, nonce);
    socket.on('data', (chunk: Buffer) => {
      try {
        reader.push(chunk, (id, body) => {
          if (trusted) return void this.answer(socket, id, body);
          const clientNonce = body.subarray(0, NONCE_BYTES);
          trusted = isProof(body.subarray(NONCE_BYTES), proof(this.#secret, 'client', clientNonce, nonce));
          clearTimeout(deadline);
          if (trusted) sendMessage(socket, id, proof(this.#secret, 'server', clientNonce, nonce));
          else socket.end();
        });
      } catch {
        socket.destroy();
      }
    });
  }

  private async answer(socket: Socket, id: number, body: Buffer): Promise<void> {
    let reply: Buffer;
    try {
      reply = encodeReply(await this.carryOut(decodeRequest(body)));
    } catch (error) {
      reply = Buffer.from(`${error instanceof TimeoutError ? 'T' : 'E'}${JSON.stringify(describeFailure(error))}`);
    }
    if (socket.writable) sendMessage(socket, id, reply);
  }

  private async carryOut(request: StoreRequest) {
    if (request.op !== 'wait') return this.table.apply(request);
    await this.table.whenSet(request.keys, request.timeoutMs, false);
    return true;
  }
}

function describeFailure(error: unknown): { message: string; details: unknown } {
  const { message, details = {} } = error as Error & { details?: unknown };
  return { message, details };
}
