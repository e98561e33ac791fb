/** A store over TCP: one process serves the keys, and the ranks of all hosts connect to it. */
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { ArgumentError, StoreError, TimeoutError } from '../../core/errors.js';
import { checkFlag, checkNumber, unexpected, withDefaults } from '../../core/options.js';
import { isLoopback } from './authentication.js';
import { connectOnce, outOfDescriptors, unreachable } from './client-handshake.js';
import { checkLength, sendMessage } from './connection.js';
import { isOutOfDescriptors } from './descriptors.js';
import { OWN_KEYS, type StoreCommand, type StoreReply } from './key-value-table.js';
import { decodeReply, encodeRequest, type StoreRequest } from './protocol.js';
import { Store } from './store.js';
import { TCPStoreServer } from './tcp-store-server.js';

/** Options of {@link TCPStore}. */
export interface TCPStoreOptions {
  /** Number of processes that will connect; null (the default) if unknown. */
  worldSize?: number | null;
  /** Whether this process is the server. Exactly one process is. False by default. */
  isServer?: boolean;
  /** Timeout of connections and waits for keys, in milliseconds. Five minutes by default. */
  timeoutMs?: number;
  /**
   * Whether the server is ready only when `worldSize` processes have connected. True by default.
   */
  waitForWorkers?: boolean;
  /**
   * Secret that all processes share; required unless the host is a loopback address. By default
   * SHARDWISE_STORE_SECRET of the environment. Without that, a server on 127.0.0.1 writes a secret
   * into a file that only processes of the same user can read (on Linux and macOS). `''`: anybody
   * may connect.
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
/** Extra time for the answer to a wait, which may be in flight when the wait times out. */
const GRACE_MS = 2_000;

/**
 * Keys and values that one process serves over TCP. The constructor starts to connect and retries
 * until the server listens; the first call or {@link TCPStore.ready} waits for the connection. An
 * idle store does not keep the process alive.
 *
 * @see PyTorch `torch.distributed.TCPStore`
 */
export class TCPStore extends Store {
  /** The address of the server. */
  readonly host: string;
  /** Whether this process keeps the keys. */
  readonly isServer: boolean;
  private readonly worldSize: number | null;
  /**
   * Null: the secret that the server publishes. Private to JavaScript, too, so that printing the
   * store does not show it.
   */
  readonly #secret: string | null;
  private readonly connected: Promise<Socket>;
  private readonly joined: Promise<void>;
  private readonly pending = new Map<number, Pending>();
  private server: TCPStoreServer | null = null;
  private givenPort: number;
  private lastId = 0;
  /** Why the connection is closed; null while it is open. */
  private failure: Error | null = null;
  private closed = false;
  private connecting: Socket | null = null;

  /**
   * @param port - 0 lets the system choose; see {@link TCPStore.port} after {@link TCPStore.ready}
   * @throws ArgumentError for an invalid port or option, and for a host that other machines can
   * reach if there is no secret
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
        `TCPStore: other machines can reach ${host}, so all ranks need one secret: set ` +
          'SHARDWISE_STORE_SECRET, or pass { secret }. Without one, use 127.0.0.1.',
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

  /** The port of the server; a port that the system chose is known after {@link TCPStore.ready}. */
  get port(): number {
    return this.givenPort;
  }

  /** `TCPStore(127.0.0.1:29500, server, 4 workers)` */
  override toString(): string {
    const workers =
      this.worldSize === null
        ? ''
        : `, ${this.worldSize} ${this.worldSize === 1 ? 'worker' : 'workers'}`;
    return (
      `TCPStore(${this.host}:${this.port}, ` +
      `${this.isServer ? 'server' : 'client'}${workers}${this.closed ? ', closed' : ''})`
    );
  }

  /**
   * Resolves when the store is connected; on the server, when all workers are. @throws
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

  /** Closes the connection and, on the server, all connections. Calls in flight fail. */
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
        await sleep(pause * (0.5 + Math.random())); // so that ranks do not retry together
      }
    }
  }

  private async connectOnce(deadline: number): Promise<Socket> {
    const { host, givenPort: port } = this;
    const { socket, authenticated } = connectOnce({
      host,
      port,
      secret: this.#secret,
      isServer: this.isServer,
      deadline,
      onMessage: (id, body, from) => this.receive(id, body, from),
      onClose: (cause) => {
        const why = cause === null ? '' : `: ${cause.message}`;
        const message = `TCPStore: the connection to ${host}:${port} was closed${why}`;
        this.fail(new StoreError(message, { host, port, disconnected: true }));
      },
    });
    this.connecting = socket;
    await authenticated;
    this.connecting = null;
    return socket;
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
          `TCPStore: ${present} of ${worldSize} processes had connected to ` +
            `${this.host}:${this.port} after ${this.timeoutMs} ms`,
          {
            op: 'TCPStore',
            present,
            worldSize,
          },
        );
      },
    );
  }

  /** @internal `isQuiet`: the request does not keep the process alive */
  async ask(request: StoreRequest, timeoutMs: number, isQuiet = false): Promise<StoreReply> {
    const body = encodeRequest(request);
    checkLength(body.length);
    const socket = await this.connected;
    if (this.failure !== null) throw this.failure;
    this.lastId = (this.lastId + 1) % 2 ** 32;
    const id = this.lastId;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.settle(id, socket);
        reject(
          new TimeoutError(
            `TCPStore: ${this.host}:${this.port} did not answer "${request.op}" ` +
              `within ${timeoutMs} ms`,
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
    this.failure ??= error;
    const waiting = [...this.pending.values()];
    this.pending.clear();
    for (const each of waiting) each.reject(this.failure);
  }
}

/** The same store for background calls: see {@link TCPStore.quietly}. */
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
