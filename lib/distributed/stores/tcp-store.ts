/** A store over TCP: one process keeps the keys, all ranks of all hosts connect to it. */
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { ArgumentError, StoreError, TimeoutError } from '../../core/errors.js';
import { checkFlag, checkNumber, unexpected, withDefaults } from '../../core/options.js';
import {
  GREETING_BYTES,
  isLoopback,
  isProof,
  NONCE_BYTES,
  newNonce,
  proof,
} from './authentication.js';
import { checkLength, MessageReader, sendMessage } from './connection.js';
import { isOutOfDescriptors } from './descriptors.js';
import { OWN_KEYS, type StoreCommand, type StoreReply } from './key-value-table.js';
import { findSecret } from './own-secret.js';
import { decodeReply, encodeRequest, LONGEST_MESSAGE, type StoreRequest } from './protocol.js';
import { Store } from './store.js';
import { TCPStoreServer } from './tcp-store-server.js';

/** Options of {@link TCPStore}. */
export interface TCPStoreOptions {
  /** How many processes will connect; null (the default) if that is not known. */
  worldSize?: number | null;
  /** Whether this process keeps the keys: exactly one does. False by default. */
  isServer?: boolean;
  /** For connections and keys, in milliseconds. Five minutes by default. */
  timeoutMs?: number;
  /**
   * Whether the server is ready only when `worldSize` processes have connected. True by default.
   */
  waitForWorkers?: boolean;
  /**
   * Shared by all; needed where the host is not this machine alone. By default the environment's
   * SHARDWISE_STORE_SECRET, and on 127.0.0.1 without that one of its own, which processes of the
   * same user find in a file that only they can read (on Linux and macOS). `''`: everybody may
   * connect.
   */
  secret?: string | null;
}

type Settings = Required<Omit<TCPStoreOptions, 'timeoutMs'>> & { timeoutMs: number | null };

interface Pending {
  readonly isQuiet: boolean;
  resolve(reply: StoreReply): void;
  reject(error: Error): void;
}

const WORKERS_KEY = `${OWN_KEYS}connected`;
/** An answer to a wait may be on its way when the time is over. */
const GRACE_MS = 2_000;

/**
 * Keys and values that one process keeps and others reach over TCP. Connecting begins at once and
 * is waited for by the first call, or by {@link TCPStore.ready}; until the server is there it is
 * tried again. An idle store does not keep the process alive.
 *
 * @see PyTorch `torch.distributed.TCPStore`
 */
export class TCPStore extends Store {
  /** The address of the server. */
  readonly host: string;
  /** Whether this process keeps the keys. */
  readonly isServer: boolean;
  private readonly worldSize: number | null;
  /** Null: one of its own. Not of TypeScript alone: nothing that prints objects may show it. */
  readonly #secret: string | null;
  private readonly connected: Promise<Socket>;
  private readonly joined: Promise<void>;
  private readonly pending = new Map<number, Pending>();
  private server: TCPStoreServer | null = null;
  private givenPort: number;
  private lastId = 0;
  private lost: Error | null = null;
  private closed = false;
  private connecting: Socket | null = null;

  /**
   * @param port - 0 lets the server choose; see {@link TCPStore.port} after {@link TCPStore.ready}
   * @throws ArgumentError for a bad port or option, and for a host that others can reach without a
   * secret
   */
  constructor(host: string, port: number, options: TCPStoreOptions = {}) {
    const defaults = {
      worldSize: null,
      isServer: false,
      timeoutMs: null,
      waitForWorkers: true,
      secret: process.env['SHARDWISE_STORE_SECRET'] || null,
    };
    const { worldSize, isServer, timeoutMs, waitForWorkers, secret } = withDefaults<Settings>(
      'TCPStore',
      defaults,
      options,
    );
    super(timeoutMs);
    if (typeof host !== 'string' || host === '')
      throw unexpected('TCPStore', 'host', 'a host name or address', host);
    checkNumber('TCPStore', 'port', port, { from: isServer ? 0 : 1, to: 65535, whole: true });
    if (worldSize !== null)
      checkNumber('TCPStore', 'worldSize', worldSize, { from: 1, whole: true });
    checkFlag('TCPStore', 'isServer', isServer);
    checkFlag('TCPStore', 'waitForWorkers', waitForWorkers);
    if (secret !== null && typeof secret !== 'string')
      throw unexpected('TCPStore', 'secret', 'a string', secret);
    if (!secret && !isLoopback(host)) {
      throw new ArgumentError(
        `TCPStore: other machines can reach ${host}, so all ranks need one secret: set SHARDWISE_STORE_SECRET, or pass { secret }. Without one, use 127.0.0.1.`,
        { op: 'TCPStore', host },
      );
    }
    this.host = host;
    this.givenPort = port;
    this.isServer = isServer;
    this.worldSize = worldSize;
    this.#secret = secret;
    this.connected = this.open();
    this.joined = this.join(waitForWorkers);
    // reported by the first call
    for (const promise of [this.connected, this.joined]) promise.catch(() => {});
  }

  /** The port of the server; that which was chosen only after {@link TCPStore.ready}. */
  get port(): number {
    return this.givenPort;
  }

  /** `TCPStore(127.0.0.1:29500, server, 4 workers)` */
  override toString(): string {
    const workers =
      this.worldSize === null
        ? ''
        : `, ${this.worldSize} ${this.worldSize === 1 ? 'worker' : 'workers'}`;
    return `TCPStore(${this.host}:${this.port}, ${this.isServer ? 'server' : 'client'}${workers}${this.closed ? ', closed' : ''})`;
  }

  /**
   * Resolves when the store can be used, on the server when all workers have connected. @throws
   * TimeoutError, StoreError
   */
  async ready(): Promise<this> {
    await this.joined;
    return this;
  }

  /** @internal */
  async run(command: StoreCommand): Promise<StoreReply> {
    return this.ask(command, this.timeoutMs);
  }

  /** @internal */
  async whenSet(keys: readonly string[], timeoutMs: number): Promise<void> {
    await this.ask(waitFor(keys, timeoutMs), timeoutMs + GRACE_MS);
  }

  /** @internal */
  override quietly(): Store {
    return new QuietStore(this);
  }

  /** Ends the connection and, on the server, all connections. Calls under way fail. */
  override async close(): Promise<void> {
    if (this.closed) return;
    this.closed = true;
    this.connecting?.destroy();
    const socket = await this.connected.catch(() => null);
    this.fail(
      new StoreError('TCPStore: this store was closed', { host: this.host, port: this.port }),
    );
    socket?.destroy();
    await this.server?.close();
  }

  private async open(): Promise<Socket> {
    if (this.isServer) {
      this.server = await TCPStoreServer.listen(this.host, this.givenPort, this.#secret);
      this.givenPort = this.server.port;
    }
    const deadline = Date.now() + this.timeoutMs;
    for (let pause = 10; ; pause = Math.min(500, 2 * pause)) {
      try {
        return await this.connectOnce(deadline);
      } catch (error) {
        if (error instanceof StoreError) throw error;
        if (isOutOfDescriptors(error) || (!this.closed && this.server?.isOutOfDescriptors(error)))
          throw outOfDescriptors(this.host, this.givenPort, error as Error);
        if (this.closed || Date.now() + pause > deadline)
          throw unreachable(this.host, this.givenPort, this.timeoutMs, error as Error);
        await sleep(pause * (0.5 + Math.random())); // not all ranks at the same moment
      }
    }
  }

  private connectOnce(deadline: number): Promise<Socket> {
    return new Promise((resolve, reject) => {
      const socket = connect({
        host: isLoopback(this.host) || !this.isServer ? this.host : '127.0.0.1',
        port: this.givenPort,
        noDelay: true,
      });
      this.connecting = socket;
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
            return void socket.destroy(strangeServer(this.host, this.givenPort));
          const secret = this.#secret ?? findSecret(this.givenPort);
          expected = proof(secret, 'server', nonce, body);
          sendMessage(socket, 0, Buffer.concat([nonce, proof(secret, 'client', nonce, body)]));
          return;
        }
        if (!isProof(body, expected))
          return void socket.destroy(wrongSecret(this.host, this.givenPort));
        trusted = true;
        this.connecting = null;
        reader.limit = LONGEST_MESSAGE;
        clearTimeout(timer);
        socket.unref();
        resolve(socket);
      };
      socket.on('data', (chunk: Buffer) => {
        try {
          reader.push(chunk);
          for (let message = reader.next(); message !== null; message = reader.next()) {
            if (trusted) this.receive(message.id, message.body, socket);
            else greet(message.id, message.body);
          }
        } catch (error) {
          // What is left of a message that is too long for a greeting says who that is.
          socket.destroy(
            trusted || reader.held === 0
              ? (error as Error)
              : strangeServer(this.host, this.givenPort),
          );
        }
      });
      let cause: Error | null = null;
      socket.on('error', (error) => {
        cause = error;
      });
      socket.on('close', () => {
        clearTimeout(timer);
        // Also a server with too many strangers closes without an answer: then this one tries
        // again.
        if (!trusted)
          return reject(cause ?? new Error('the connection was closed before it was answered'));
        this.fail(
          new StoreError(
            `TCPStore: the connection to ${this.host}:${this.port} was lost${cause === null ? '' : `: ${cause.message}`}`,
            {
              host: this.host,
              port: this.port,
              lost: true,
            },
          ),
        );
      });
    });
  }

  private async join(waitForWorkers: boolean): Promise<void> {
    const { worldSize } = this;
    await this.connected;
    const deadline = Date.now() + this.timeoutMs;
    const joined = await this.add(WORKERS_KEY, 1);
    if (worldSize === null || joined >= worldSize) await this.set(`${WORKERS_KEY}.all`, '');
    if (!this.isServer || !waitForWorkers || worldSize === null) return;
    await this.whenSet([`${WORKERS_KEY}.all`], Math.max(0, deadline - Date.now())).catch(
      async (error: unknown) => {
        if (!(error instanceof TimeoutError)) throw error;
        const present = await this.add(WORKERS_KEY, 0);
        throw new TimeoutError(
          `TCPStore: ${present} of ${worldSize} processes had connected to ${this.host}:${this.port} after ${this.timeoutMs} ms`,
          {
            op: 'TCPStore',
            present,
            worldSize,
          },
        );
      },
    );
  }

  /** @internal `isQuiet`: the process may end meanwhile */
  async ask(request: StoreRequest, timeoutMs: number, isQuiet = false): Promise<StoreReply> {
    const body = encodeRequest(request);
    checkLength(body.length);
    const socket = await this.connected;
    if (this.lost !== null) throw this.lost;
    this.lastId = (this.lastId + 1) % 2 ** 32;
    const id = this.lastId;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.settle(id, socket);
        reject(
          new TimeoutError(
            `TCPStore: ${this.host}:${this.port} did not answer "${request.op}" within ${timeoutMs} ms`,
            { op: request.op, timeoutMs },
          ),
        );
      }, timeoutMs);
      if (isQuiet) timer.unref();
      const done = (): void => clearTimeout(timer);
      this.pending.set(id, {
        isQuiet,
        resolve: (reply) => {
          done();
          resolve(reply);
        },
        reject: (error) => {
          done();
          reject(error);
        },
      });
      if (!isQuiet) socket.ref();
      sendMessage(socket, id, body);
    });
  }

  private settle(id: number, socket: Socket): Pending | undefined {
    const waiting = this.pending.get(id);
    this.pending.delete(id);
    if (!this.isAwaited()) socket.unref();
    return waiting;
  }

  private isAwaited(): boolean {
    for (const { isQuiet } of this.pending.values()) if (!isQuiet) return true;
    return false;
  }

  private receive(id: number, body: Buffer, socket: Socket): void {
    const waiting = this.settle(id, socket);
    try {
      waiting?.resolve(decodeReply(body));
    } catch (error) {
      waiting?.reject(error as Error);
    }
  }

  private fail(error: Error): void {
    this.lost ??= error;
    const waiting = [...this.pending.values()];
    this.pending.clear();
    for (const each of waiting) each.reject(this.lost);
  }
}

/** What {@link TCPStore.quietly} gives. */
class QuietStore extends Store {
  private readonly store: TCPStore;

  constructor(store: TCPStore) {
    super(store.timeout);
    this.store = store;
  }

  async run(command: StoreCommand): Promise<StoreReply> {
    return this.store.ask(command, this.timeoutMs, true);
  }

  async whenSet(keys: readonly string[], timeoutMs: number): Promise<void> {
    await this.store.ask(waitFor(keys, timeoutMs), timeoutMs + GRACE_MS, true);
  }
}

const waitFor = (keys: readonly string[], timeoutMs: number): StoreRequest => ({
  op: 'wait',
  keys,
  timeoutMs: Math.ceil(timeoutMs),
});

function unreachable(host: string, port: number, timeoutMs: number, cause: Error): TimeoutError {
  return new TimeoutError(
    `TCPStore: no server at ${host}:${port} within ${timeoutMs} ms: ${cause.message}. Is the process with { isServer: true } running?`,
    { host, port, timeoutMs },
    { cause },
  );
}

function outOfDescriptors(host: string, port: number, cause: Error): StoreError {
  return new StoreError(
    `TCPStore: cannot connect to ${host}:${port}: this process may open no more files (${cause.message}). Raise the limit: ulimit -n.`,
    { host, port },
    { cause },
  );
}

function wrongSecret(host: string, port: number): StoreError {
  return new StoreError(
    `TCPStore: ${host}:${port} has another secret. All ranks need the same SHARDWISE_STORE_SECRET, or { secret }.`,
    { host, port },
  );
}

function strangeServer(host: string, port: number): StoreError {
  return new StoreError(`TCPStore: what listens on ${host}:${port} is no store of this library`, {
    host,
    port,
  });
}
