/** The process that keeps the keys of a TCPStore. */
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

/** A stranger that has not shown by then that it knows the secret is sent away. */
const HANDSHAKE_MS = 5_000;
/** What a stranger may send: a message of {@link GREETING_BYTES}, once. */
const MOST_STRANGE_BYTES = 64;
/**
 * Strangers at a time, as far as descriptors allow: enough for the ranks of a large world that
 * connect at once.
 */
const MOST_STRANGERS = 512;
/** Of keys, values and waits. */
const MOST_TABLE_BYTES = 2 ** 30;
/** Of replies that clients do not read, of all clients together. */
const MOST_QUEUED_BYTES = 2 ** 30;
/** A client whose machine has gone without a word is missed after some minutes. */
const KEEP_ALIVE_MS = 60_000;

/**
 * Serves a table to whoever knows the secret. Does not keep the process alive.
 *
 * Whoever connects is a stranger until it has proved that it knows the secret. There are only so
 * many strangers at a time: one more sends away the one that has been there longest. So those who
 * connect and say nothing cannot keep a rank out: it needs one round trip to become a client, and
 * if so many others come in that time that it is sent away itself, it tries again. Clients do not
 * count.
 */
export class TCPStoreServer {
  private readonly table = new KeyValueTable({
    longestValue: LONGEST_VALUE,
    mostBytes: MOST_TABLE_BYTES,
  });
  /** In the order in which they came. */
  private readonly strangers = new Set<Socket>();
  private readonly clients = new Set<ClientSession>();
  private readonly mostStrangers = Math.max(
    8,
    Math.min(MOST_STRANGERS, Math.floor(descriptorLimit() / 4)),
  );
  private readonly server: Server;
  private readonly published: OwnSecret | null;
  private hasGreeted = false;
  /** Not of TypeScript alone: nothing that prints objects may show it. */
  readonly #secret: string;

  private constructor(server: Server, secret: string | null) {
    this.server = server;
    this.published = secret === null ? publishSecret(this.port) : null;
    this.#secret = secret ?? this.published?.secret ?? '';
    server.on('connection', (socket) => this.greet(socket));
    server.on('error', () => {}); // a connection that could not be taken: who wants it tries again
    server.unref();
  }

  /**
   * @param secret - null: one of its own, for processes of this user. @throws StoreError if the
   * port cannot be had
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
   * Whether that is why this process's own connection, the first of all, has failed: one that there
   * is no descriptor for is closed without a word.
   */
  isOutOfDescriptors(error: unknown): boolean {
    return (
      !this.hasGreeted &&
      [undefined, 'ECONNRESET', 'EPIPE'].includes((error as NodeJS.ErrnoException).code)
    );
  }

  close(): Promise<void> {
    this.published?.withdraw();
    for (const socket of this.strangers) socket.destroy();
    for (const client of this.clients) client.destroy();
    return new Promise((resolve) => this.server.close(() => resolve()));
  }

  /**
   * Server: its nonce. Client: its nonce and proof. Server: its proof, or an empty message to one
   * that has another secret. Then requests and replies.
   */
  private greet(socket: Socket): void {
    this.hasGreeted = true;
    socket.unref();
    socket.on('error', () => socket.destroy());
    socket.on('end', () => socket.destroy()); // clients do not half-close
    this.takeIn(socket);
    const deadline = setTimeout(() => socket.destroy(), HANDSHAKE_MS).unref();
    socket.on('close', () => {
      clearTimeout(deadline);
      this.strangers.delete(socket);
    });
    const nonce = newNonce();
    const reader = new MessageReader(GREETING_BYTES);
    const listen = (chunk: Buffer): void => {
      const answer =
        reader.held + chunk.length > MOST_STRANGE_BYTES
          ? 'stranger'
          : this.judge(chunk, reader, nonce, socket);
      if (answer === 'more') return;
      socket.off('data', listen);
      // Once the answer is written, whether or not the other side closes.
      if (answer === 'stranger') socket.destroySoon();
      else {
        clearTimeout(deadline);
        this.admit(socket, reader);
      }
    };
    socket.on('data', listen);
    sendMessage(socket, 0, nonce);
  }

  private takeIn(socket: Socket): void {
    this.strangers.add(socket);
    if (this.strangers.size <= this.mostStrangers) return;
    const oldest = this.strangers.values().next().value as Socket;
    this.strangers.delete(oldest);
    oldest.destroy();
  }

  /** One try: what is no proof of the secret ends the connection. */
  private judge(
    chunk: Buffer,
    reader: MessageReader,
    nonce: Buffer,
    socket: Socket,
  ): 'more' | 'client' | 'stranger' {
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
      return isClient ? 'client' : 'stranger';
    } catch {
      return 'stranger'; // a message too long for a proof
    }
  }

  private admit(socket: Socket, reader: MessageReader): void {
    this.strangers.delete(socket);
    reader.limit = LONGEST_MESSAGE;
    const client = new ClientSession(socket, reader, this.table, () => this.sendAwaySlowest());
    this.clients.add(client);
    socket.on('close', () => this.clients.delete(client));
  }

  /** Each client's replies are bounded; those of many clients that read none are by this. */
  private sendAwaySlowest(): void {
    let [sum, slowest]: [number, ClientSession | null] = [0, null];
    for (const client of this.clients) {
      sum += client.queued;
      if (client.queued > (slowest?.queued ?? 0)) slowest = client;
    }
    if (sum > MOST_QUEUED_BYTES) slowest?.destroy();
  }
}
