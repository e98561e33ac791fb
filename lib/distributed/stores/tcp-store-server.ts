/** The server of a TCPStore. */
import { createServer, type Server, type Socket } from 'node:net';
import { StoreError } from '../../core/errors.js';
import {
  GREETING_BYTES,
  isLoopback,
  isProof,
  NONCE_BYTES,
  newNonce,
  proof,
} from './authentication.js';
import { ClientSession } from './client-session.js';
import { MessageReader, sendMessage } from './connection.js';
import { descriptorLimit } from './descriptors.js';
import { KeyValueTable } from './key-value-table.js';
import { type OwnSecret, publishSecret } from './own-secret.js';
import { LONGEST_MESSAGE, LONGEST_VALUE } from './protocol.js';

/** A connection that has not authenticated within this time is closed. */
const HANDSHAKE_MS = 5_000;
/** Bytes accepted before authentication: one message of {@link GREETING_BYTES}. */
const MOST_UNAUTHENTICATED_BYTES = 64;
/**
 * Most unauthenticated connections, if descriptors allow: enough for the ranks of a large world
 * that connect at once.
 */
const MOST_UNAUTHENTICATED = 512;
/** Bytes of all keys, values and waits. */
const MOST_TABLE_BYTES = 2 ** 30;
/** Bytes of unread replies, of all clients together. */
const MOST_QUEUED_BYTES = 2 ** 30;
/** TCP keep-alive, so that a client whose machine failed is detected after some minutes. */
const KEEP_ALIVE_MS = 60_000;

/**
 * Serves a table to clients that know the secret. Does not keep the process alive.
 *
 * A connection is unauthenticated until it proves that it knows the secret. The number of
 * unauthenticated connections is limited: a new one closes the oldest. So connections that stay
 * silent cannot keep a rank out. A rank needs one round trip to authenticate, and tries again if
 * it was closed in that time. Authenticated clients do not count.
 */
export class TCPStoreServer {
  private readonly table = new KeyValueTable({
    longestValue: LONGEST_VALUE,
    mostBytes: MOST_TABLE_BYTES,
  });
  /** In order of arrival. */
  private readonly unauthenticated = new Set<Socket>();
  private readonly clients = new Set<ClientSession>();
  private readonly mostUnauthenticated = Math.max(
    8,
    Math.min(MOST_UNAUTHENTICATED, Math.floor(descriptorLimit() / 4)),
  );
  private readonly server: Server;
  private readonly published: OwnSecret | null;
  private hasGreeted = false;
  /** Private to JavaScript, too, so that printing the object does not show it. */
  readonly #secret: string;

  private constructor(server: Server, secret: string | null) {
    this.server = server;
    this.published = secret === null ? publishSecret(this.port) : null;
    this.#secret = secret ?? this.published?.secret ?? '';
    server.on('connection', (socket) => this.greet(socket));
    server.on('error', () => {}); // a connection that could not be accepted: its client tries again
    server.unref();
  }

  /**
   * @param secret - null: publishes a secret for processes of this user. @throws StoreError if the
   * port is not available
   */
  static listen(host: string, port: number, secret: string | null): Promise<TCPStoreServer> {
    return new Promise((resolve, reject) => {
      const server = createServer({
        noDelay: true,
        keepAlive: true,
        keepAliveInitialDelay: KEEP_ALIVE_MS,
      });
      const refused = (error: Error): void => {
        reject(
          new StoreError(
            `TCPStore: cannot listen on ${host}:${port}: ${error.message}`,
            { host, port },
            { cause: error },
          ),
        );
      };
      server.once('error', refused);
      server.listen(isLoopback(host) ? { host, port } : { port }, () => {
        server.off('error', refused);
        resolve(new TCPStoreServer(server, secret));
      });
    });
  }

  get port(): number {
    return (this.server.address() as { port: number }).port;
  }

  /**
   * Whether the connection of the server's own process, the first of all, failed for want of a
   * descriptor: the system closes such a connection silently.
   */
  isOutOfDescriptors(error: unknown): boolean {
    return (
      !this.hasGreeted &&
      [undefined, 'ECONNRESET', 'EPIPE'].includes((error as NodeJS.ErrnoException).code)
    );
  }

  close(): Promise<void> {
    this.published?.withdraw();
    for (const socket of this.unauthenticated) socket.destroy();
    for (const client of this.clients) client.destroy();
    return new Promise((resolve) => this.server.close(() => resolve()));
  }

  /**
   * The handshake. Server: its nonce. Client: its nonce and proof. Server: its proof, or an empty
   * message if the secrets differ. Requests and replies follow.
   */
  private greet(socket: Socket): void {
    this.hasGreeted = true;
    socket.unref();
    socket.on('error', () => socket.destroy());
    socket.on('end', () => socket.destroy()); // clients do not half-close
    this.addUnauthenticated(socket);
    const deadline = setTimeout(() => socket.destroy(), HANDSHAKE_MS).unref();
    socket.on('close', () => {
      clearTimeout(deadline);
      this.unauthenticated.delete(socket);
    });
    const nonce = newNonce();
    const reader = new MessageReader(GREETING_BYTES);
    const listen = (chunk: Buffer): void => {
      const answer =
        reader.held + chunk.length > MOST_UNAUTHENTICATED_BYTES
          ? 'refused'
          : this.authenticate(chunk, reader, nonce, socket);
      if (answer === 'more') return;
      socket.off('data', listen);
      // Closes once the answer is written, whether or not the other side closes.
      if (answer === 'refused') socket.destroySoon();
      else {
        clearTimeout(deadline);
        this.admit(socket, reader);
      }
    };
    socket.on('data', listen);
    sendMessage(socket, 0, nonce);
  }

  private addUnauthenticated(socket: Socket): void {
    this.unauthenticated.add(socket);
    if (this.unauthenticated.size <= this.mostUnauthenticated) return;
    const oldest = this.unauthenticated.values().next().value as Socket;
    this.unauthenticated.delete(oldest);
    oldest.destroy();
  }

  /** Checks the first message: a wrong proof ends the connection. */
  private authenticate(
    chunk: Buffer,
    reader: MessageReader,
    nonce: Buffer,
    socket: Socket,
  ): 'more' | 'client' | 'refused' {
    try {
      reader.push(chunk);
      const message = reader.next();
      if (message === null) return 'more';
      const { id, body } = message;
      const clientNonce = body.subarray(0, NONCE_BYTES);
      const isClient = isProof(
        body.subarray(NONCE_BYTES),
        proof(this.#secret, 'client', clientNonce, nonce),
      );
      sendMessage(
        socket,
        id,
        isClient ? proof(this.#secret, 'server', clientNonce, nonce) : Buffer.alloc(0),
      );
      return isClient ? 'client' : 'refused';
    } catch {
      return 'refused'; // a message too long for a proof
    }
  }

  private admit(socket: Socket, reader: MessageReader): void {
    this.unauthenticated.delete(socket);
    reader.limit = LONGEST_MESSAGE;
    const client = new ClientSession(socket, reader, this.table, () => this.dropSlowest());
    this.clients.add(client);
    socket.on('close', () => this.clients.delete(client));
  }

  /** Disconnects the slowest client if the unread replies of all clients exceed the limit. */
  private dropSlowest(): void {
    let [sum, slowest]: [number, ClientSession | null] = [0, null];
    for (const client of this.clients) {
      sum += client.queued;
      if (client.queued > (slowest?.queued ?? 0)) slowest = client;
    }
    if (sum > MOST_QUEUED_BYTES) slowest?.destroy();
  }
}
