/**
 * A store in a file, for processes of one machine or of several with a shared file system. The file
 * system must append atomically.
 */
import * as fs from 'node:fs';
import { rm, stat } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { crc32 } from 'node:zlib';
import { StoreError } from '../../core/errors.js';
import { checkNumber, optionsOf, unexpected } from '../../core/options.js';
import { checkLength } from './connection.js';
import {
  KeyValueTable,
  OWN_KEYS,
  type StoreCommand,
  type StoreReply,
  waitedTooLong,
} from './key-value-table.js';
import { decodeRequest, encodeRequest, LONGEST_MESSAGE, LONGEST_VALUE } from './protocol.js';
import { Store } from './store.js';

const HEAD_BYTES = 16; // length, checksum, writer, number of the writer's record
const LEFT_KEY = `${OWN_KEYS}left`;
const SHORTEST_PAUSE_MS = 2;
const LONGEST_PAUSE_MS = 50;
/** A record still incomplete after this time is damaged, not being written. */
const TORN_MS = 2_000;

// Plain descriptors, because Node warns when the garbage collector finds an open FileHandle.
const [open, read, append, close, statOf] = [
  promisify(fs.open),
  promisify(fs.read),
  promisify(fs.appendFile),
  promisify(fs.close),
  promisify(fs.fstat),
];
const dropped = new FinalizationRegistry<number>((file) => fs.close(file, () => {}));

const { O_RDWR, O_APPEND, O_CREAT, O_NOFOLLOW = 0, O_NONBLOCK = 0 } = fs.constants;

/** Opens a regular file; refuses symbolic links and does not block on a pipe. */
async function openRegular(path: string): Promise<number> {
  const refused = (why: string, cause?: Error): StoreError =>
    new StoreError(
      `FileStore: cannot open ${path}: ${why}`,
      { path },
      cause === undefined ? undefined : { cause },
    );
  const file = await open(path, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0o600).catch(
    (error: NodeJS.ErrnoException) => {
      throw refused(error.code === 'ELOOP' ? 'it is a symbolic link' : error.message, error);
    },
  );
  if ((await statOf(file)).isFile()) return file;
  await close(file);
  throw refused('it is not a regular file');
}

/**
 * Keys and values in a file. Changes are appended, and every process applies them in file order.
 * So no lock is needed, and `add` and `compareSet` give the same answers to all. Network file
 * systems without atomic appends, such as NFS, are not supported. A new file has mode 600; symbolic
 * links and other non-regular files are refused.
 *
 * @see PyTorch `torch.distributed.FileStore`
 */
export class FileStore extends Store {
  /** The path of the file. */
  readonly path: string;
  private readonly worldSize: number | null;
  private readonly table = new KeyValueTable({ longestValue: LONGEST_VALUE });
  private readonly file: Promise<number>;
  /** Serializes commands: each reads the file up to its own record. */
  private last: Promise<unknown> = Promise.resolve();
  private readonly writer = (Math.random() * 2 ** 32) >>> 0;
  private own = 0;
  private offset = 0;
  private closed = false;

  /**
   * @param path - The file, created if missing. Remove the file of an earlier run first: its keys
   * would come back.
   * @param worldSize - How many processes use the store: the last one to close it removes the file.
   * Null (the default): nobody removes it.
   * @throws ArgumentError for an invalid path or size
   */
  constructor(path: string, worldSize: number | null = null, options: { timeoutMs?: number } = {}) {
    super(optionsOf('FileStore', options, 'timeoutMs').timeoutMs);
    if (typeof path !== 'string' || path === '')
      throw unexpected('FileStore', 'path', 'the path of a file', path);
    if (worldSize !== null)
      checkNumber('FileStore', 'worldSize', worldSize, { from: 1, whole: true });
    this.path = path;
    this.worldSize = worldSize;
    this.file = openRegular(path);
    // Also closes the file of a store that was collected before its file was open.
    const itself = new WeakRef(this);
    this.file
      .then((file) => {
        const store = itself.deref();
        if (store === undefined) fs.close(file, () => {});
        else dropped.register(store, file, store);
      })
      .catch(() => {}); // reported by the first call
  }

  /** `FileStore(/tmp/ranks, 4 processes)` */
  override toString(): string {
    const processes =
      this.worldSize === null
        ? ''
        : `, ${this.worldSize} ${this.worldSize === 1 ? 'process' : 'processes'}`;
    return `FileStore(${this.path}${processes}${this.closed ? ', closed' : ''})`;
  }

  /** @internal */
  run(command: StoreCommand): Promise<StoreReply> {
    const result = this.last.then(() => this.carryOut(command));
    this.last = result.catch(() => {});
    return result;
  }

  /** @internal */
  async whenSet(keys: readonly string[], timeoutMs: number): Promise<void> {
    const deadline = Date.now() + timeoutMs;
    for (let pause = SHORTEST_PAUSE_MS; ; pause = Math.min(LONGEST_PAUSE_MS, 2 * pause)) {
      if (await this.run({ op: 'check', keys })) return;
      const left = deadline - Date.now();
      if (left <= 0)
        throw waitedTooLong(
          keys.filter((key) => !this.table.apply({ op: 'check', keys: [key] })),
          timeoutMs,
        );
      await sleep(Math.min(pause, left));
    }
  }

  /** Closes the file, and removes it if all other processes have closed it. */
  override async close(): Promise<void> {
    if (this.closed) return;
    try {
      if (
        this.worldSize !== null &&
        (await this.run({ op: 'add', key: LEFT_KEY, amount: 1 })) === this.worldSize
      )
        await this.unlink();
    } finally {
      this.closed = true;
      await this.last;
      const file = await this.file;
      dropped.unregister(this);
      await close(file);
    }
  }

  /**
   * Removes the file's name: processes that have it open go on, and the next run gets a new file.
   * @internal
   */
  async unlink(): Promise<void> {
    const [own, there] = await Promise.all([
      statOf(await this.file),
      stat(this.path).catch(() => null),
    ]);
    // The path may already be the file of the next run.
    if (there !== null && own.ino === there.ino && own.dev === there.dev)
      await rm(this.path, { force: true });
  }

  private async carryOut(command: StoreCommand): Promise<StoreReply> {
    if (this.closed) throw new StoreError('FileStore: this store was closed', { path: this.path });
    const changes = command.op !== 'get' && command.op !== 'check' && command.op !== 'count';
    if (!changes) {
      await this.readTo(null);
      return this.table.apply(command);
    }
    const body = encodeRequest(command);
    checkLength(body.length);
    const file = await this.file;
    await append(file, this.record(body));
    return this.readTo(this.own);
  }

  private record(body: Buffer): Buffer {
    this.own++;
    const head = Buffer.alloc(HEAD_BYTES);
    head.writeUInt32LE(body.length, 0);
    head.writeUInt32LE(crc32(body), 4);
    head.writeUInt32LE(this.writer, 8);
    head.writeUInt32LE(this.own, 12);
    return Buffer.concat([head, body]);
  }

  /**
   * Applies the records appended since the last read, up to the end of the file or up to this
   * process's record `own`, whose reply is returned.
   */
  private async readTo(own: number | null): Promise<StoreReply> {
    const deadline = Date.now() + TORN_MS;
    for (;;) {
      const record = await this.next();
      if (record === 'end') {
        if (own === null) return null;
      } else if (record !== 'torn') {
        const reply = this.applied(record.body);
        if (own !== null && record.writer === this.writer && record.number === own) {
          if (reply instanceof Error) throw reply;
          return reply;
        }
        continue;
      }
      if (Date.now() > deadline) throw this.damaged();
      await sleep(1);
    }
  }

  private damaged(): StoreError {
    return new StoreError(
      `FileStore: ${this.path} is damaged at byte ${this.offset}; remove it and start again`,
      { path: this.path, offset: this.offset },
    );
  }

  /** A failing command fails in every process; only its writer throws the error. */
  private applied(body: Buffer): StoreReply | StoreError {
    try {
      return this.table.apply(decodeRequest(body) as StoreCommand);
    } catch (error) {
      if (error instanceof StoreError) return error;
      throw error;
    }
  }

  private async next(): Promise<{ writer: number; number: number; body: Buffer } | 'end' | 'torn'> {
    const file = await this.file;
    const head = Buffer.alloc(HEAD_BYTES);
    const { bytesRead } = await read(file, head, 0, head.length, this.offset);
    if (bytesRead === 0) return 'end';
    if (bytesRead < head.length) return 'torn';
    const length = head.readUInt32LE(0);
    // No process writes such a length, so the record will never be complete.
    if (length > LONGEST_MESSAGE) throw this.damaged();
    const { size } = await statOf(file);
    if (this.offset + head.length + length > size) return 'torn';
    const body = Buffer.alloc(length);
    await read(file, body, 0, length, this.offset + head.length);
    if (crc32(body) !== head.readUInt32LE(4)) return 'torn';
    this.offset += head.length + length;
    return { writer: head.readUInt32LE(8), number: head.readUInt32LE(12), body };
  }
}
