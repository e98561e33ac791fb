/** The interface of key-value stores, through which ranks find each other. */
import { ArgumentError, StoreError } from '../../core/errors.js';
import { checkNumber, checkTimeout, unexpected } from '../../core/options.js';
import { currentRuntime } from '../../core/rank-runtime.js';
import type { StoreCommand, StoreReply } from './key-value-table.js';

/** Values are bytes; strings are stored as UTF-8. */
export type StoreValue = string | Uint8Array;

/**
 * Default timeout of a store in milliseconds: PyTorch's five minutes, or the timeout of `local`
 * ranks if that is shorter.
 */
const DEFAULT_TIMEOUT_MS = 300_000;
const defaultTimeout = (): number =>
  Math.min(DEFAULT_TIMEOUT_MS, currentRuntime().timeoutMs ?? DEFAULT_TIMEOUT_MS);

/**
 * Keys and values that all ranks see. Every method is asynchronous, because the store may be in
 * another process.
 *
 * @see PyTorch `torch.distributed.Store`
 */
export abstract class Store {
  /** @internal null: the default */
  timeout: number | null;

  constructor(timeoutMs: number | null = null) {
    if (timeoutMs !== null) checkTimeout(new.target.name, timeoutMs);
    this.timeout = timeoutMs;
  }

  /**
   * How long `get` and `wait` wait for keys, in milliseconds. Five minutes by default, and in a
   * `local` rank at most the timeout of the world.
   */
  get timeoutMs(): number {
    return this.timeout ?? defaultTimeout();
  }

  /**
   * Changes {@link Store.timeoutMs}. @throws ArgumentError unless it is a number from 0 to
   * 2,000,000,000 (23 days, what timers take)
   */
  setTimeout(timeoutMs: number): void {
    checkTimeout('setTimeout', timeoutMs);
    this.timeout = timeoutMs;
  }

  /** @internal carries out a command */
  abstract run(command: StoreCommand): Promise<StoreReply>;
  /** @internal resolves when all keys are set */
  abstract whenSet(keys: readonly string[], timeoutMs: number): Promise<void>;

  /** @internal whether all keys are set; null if other processes may set them */
  holds(_keys: readonly string[]): boolean | null {
    return null;
  }

  /**
   * @internal a view of the store for background calls, which do not keep the process alive. Null
   * if the store has none
   */
  quietly(): Store | null {
    return null;
  }

  /** @internal waits for keys; with a seed, other ranks take turns meanwhile */
  protected async until(keys: readonly string[], timeoutMs: number | null): Promise<void> {
    const { turns } = currentRuntime();
    const wait = (): Promise<void> => this.whenSet(keys, timeoutMs ?? defaultTimeout());
    if (turns === null || !turns.ordered) return wait();
    const what = `store.wait for ${keys.map((key) => `"${key}"`).join(', ')}`;
    // A wait that times out, or that another process may end, is not a deadlock.
    if (timeoutMs !== null || this.holds(keys) === null) return turns.wait(what, wait(), 'outside');
    await turns.wait(what, null, () => this.holds(keys) === true);
    return wait();
  }

  /** Sets a key, replacing its value. @throws StoreError */
  async set(key: string, value: StoreValue): Promise<void> {
    await this.run({ op: 'set', key: keyOf(key, 'set'), value: bytesOf(value, 'set') });
  }

  /** The value of a key; waits for it. @throws TimeoutError, StoreError */
  async get(key: string): Promise<Buffer> {
    await this.until([keyOf(key, 'get')], this.timeout);
    const value = await this.run({ op: 'get', key });
    if (value === null)
      throw new StoreError(`get: "${key}" was deleted while it was waited for`, { op: 'get', key });
    return value as Buffer;
  }

  /**
   * Adds to an integer (0 for a new key) and resolves to the sum; no two calls get the same sum.
   * @throws StoreError if the value is not a number
   */
  async add(key: string, amount: number): Promise<number> {
    checkNumber('add', 'amount', amount, { whole: true });
    return (await this.run({ op: 'add', key: keyOf(key, 'add'), amount })) as number;
  }

  /**
   * Sets the key to `desired` if its value is `expected`, or if it is absent and `expected` is
   * empty; resolves to the value afterwards.
   */
  async compareSet(key: string, expected: StoreValue, desired: StoreValue): Promise<Buffer> {
    const op = 'compareSet';
    return (await this.run({
      op,
      key: keyOf(key, op),
      expected: bytesOf(expected, op),
      desired: bytesOf(desired, op),
    })) as Buffer;
  }

  /** Appends to a value; resolves to its length in bytes. */
  async append(key: string, value: StoreValue): Promise<number> {
    return (await this.run({
      op: 'append',
      key: keyOf(key, 'append'),
      value: bytesOf(value, 'append'),
    })) as number;
  }

  /**
   * Resolves when all keys are set. @throws TimeoutError naming the missing keys, ArgumentError for
   * a timeout out of range
   */
  async wait(keys: readonly string[], timeoutMs: number | null = this.timeout): Promise<void> {
    if (timeoutMs !== null) checkTimeout('store.wait', timeoutMs);
    await this.until(keysOf(keys, 'wait'), timeoutMs);
  }

  /** Whether all keys are set now. */
  async check(keys: readonly string[]): Promise<boolean> {
    return (await this.run({ op: 'check', keys: keysOf(keys, 'check') })) as boolean;
  }

  /** Removes a key; resolves to whether it existed. */
  async deleteKey(key: string): Promise<boolean> {
    return (await this.run({ op: 'delete', key: keyOf(key, 'deleteKey') })) as boolean;
  }

  /** The number of keys, with all prefixes. */
  async numKeys(): Promise<number> {
    return (await this.run({ op: 'count' })) as number;
  }

  /** The values of several keys; waits for all of them. @throws TimeoutError, StoreError */
  async multiGet(keys: readonly string[]): Promise<Buffer[]> {
    await this.until(keysOf(keys, 'multiGet'), this.timeout);
    return Promise.all(keys.map((key) => this.get(key)));
  }

  /** Sets several keys. @throws ArgumentError unless each key has a value */
  async multiSet(keys: readonly string[], values: readonly StoreValue[]): Promise<void> {
    if (keysOf(keys, 'multiSet').length !== values.length) {
      throw new ArgumentError(
        `multiSet: ${keys.length} keys need as many values, got ${values.length}`,
        { op: 'multiSet' },
      );
    }
    await Promise.all(keys.map((key, i) => this.set(key, values[i] as StoreValue)));
  }

  /** One line without the values, which may be secrets. */
  toString(): string {
    return this.constructor.name;
  }

  /** @internal */
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return this.toString();
  }

  /** Closes connections and files of this process. Other processes can still use the store. */
  async close(): Promise<void> {}

  /** The same as {@link Store.close}. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

function keyOf(key: unknown, op: string): string {
  if (typeof key !== 'string') throw unexpected(`store.${op}`, 'key', 'a string', key);
  return key;
}

function keysOf(keys: unknown, op: string): readonly string[] {
  if (!Array.isArray(keys)) throw unexpected(`store.${op}`, 'keys', 'a list of strings', keys);
  return keys.map((key) => keyOf(key, op));
}

function bytesOf(value: unknown, op: string): Buffer {
  if (typeof value === 'string') return Buffer.from(value);
  if (value instanceof Uint8Array) return Buffer.from(value);
  throw unexpected(`store.${op}`, 'the value', 'a string or bytes', value);
}
