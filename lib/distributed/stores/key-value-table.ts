/**
 * The table behind every store: keys, values, and waits for keys. Commands are applied one at a
 * time.
 */
import { StoreError, TimeoutError } from '../../core/errors.js';

/** A change of one key, or a query. All but `get`, `check` and `count` change the table. */
export type StoreCommand =
  | { readonly op: 'set' | 'append'; readonly key: string; readonly value: Buffer }
  | { readonly op: 'add'; readonly key: string; readonly amount: number }
  | {
      readonly op: 'compareSet';
      readonly key: string;
      readonly expected: Buffer;
      readonly desired: Buffer;
    }
  | { readonly op: 'get' | 'delete'; readonly key: string }
  | { readonly op: 'check'; readonly keys: readonly string[] }
  | { readonly op: 'count' };

/** The reply to a command: a value (null: no such key), a number, or a boolean. */
export type StoreReply = Buffer | number | boolean | null;

/** Prefix of the stores' internal keys, which `count` leaves out. */
export const OWN_KEYS = '.shardwise/';

/**
 * Limits of a table that other processes write to, so that no client can fill the memory of the
 * server.
 */
export interface TableLimits {
  /** Bytes of a value. */
  readonly longestValue?: number;
  /** Bytes of all keys, values and waits together. */
  readonly mostBytes?: number;
}

interface Waiter {
  readonly missing: Set<string>;
  readonly bytes: number;
  /** Called with null when all keys are set, else with the error that ends the wait. */
  readonly end: (error: Error | null) => void;
}

/** Approximate overhead of an entry beside the bytes of key and value. */
const ENTRY_BYTES = 256;
const costOf = (key: string): number => ENTRY_BYTES + 2 * key.length;

/** Keys and values in memory. */
export class KeyValueTable {
  private readonly values = new Map<string, Buffer>();
  private readonly waiters = new Set<Waiter>();
  /** The waiters for each key, so that a new value notifies only these. */
  private readonly waitersFor = new Map<string, Set<Waiter>>();
  private readonly longestValue: number;
  private readonly mostBytes: number;
  private bytes = 0;

  constructor({
    longestValue = Number.POSITIVE_INFINITY,
    mostBytes = Number.POSITIVE_INFINITY,
  }: TableLimits = {}) {
    this.longestValue = longestValue;
    this.mostBytes = mostBytes;
  }

  /**
   * @throws StoreError if `add` finds a value that is not a number, or if the value or the table
   * would become too large
   */
  apply(command: StoreCommand): StoreReply {
    switch (command.op) {
      case 'get': {
        const value = this.values.get(command.key);
        return value === undefined ? null : Buffer.from(value); // the caller may write into it
      }
      case 'check':
        return command.keys.every((key) => this.values.has(key));
      case 'count':
        return [...this.values.keys()].filter((key) => !key.startsWith(OWN_KEYS)).length;
      case 'delete':
        return this.remove(command.key);
      case 'set':
        this.checkRoom(command.key, command.value.length);
        return this.put(command.key, command.value);
      case 'append': {
        const before = this.values.get(command.key) ?? Buffer.alloc(0);
        this.checkRoom(command.key, before.length + command.value.length);
        return this.put(command.key, Buffer.concat([before, command.value])).length;
      }
      case 'add': {
        const before = this.numberAt(command.key);
        const sum = before + command.amount;
        if (!Number.isSafeInteger(sum)) {
          throw new StoreError(
            `add: ${before} and ${command.amount} at ${quoted(command.key)} add up to more ` +
              'than 2^53 - 1, up to which integers are exact',
            {
              op: 'add',
              key: command.key,
            },
          );
        }
        const text = Buffer.from(String(sum));
        this.checkRoom(command.key, text.length);
        this.put(command.key, text);
        return sum;
      }
      case 'compareSet':
        return this.compareSet(command.key, command.expected, command.desired);
    }
  }

  /** Resolves when all keys are set. @throws TimeoutError naming the missing keys */
  whenSet(keys: readonly string[], timeoutMs: number): Promise<void> {
    return new Promise((resolve, reject) => {
      this.waitFor(keys, timeoutMs, true, (error) => (error === null ? resolve() : reject(error)));
    });
  }

  /**
   * Calls `end` once: with null when all keys are set (possibly immediately), else with a
   * TimeoutError. Without `keepAlive` the wait does not keep the process alive.
   *
   * @returns cancels the wait without calling `end`; null if the wait is already over
   * @throws StoreError if the table would become too large
   */
  waitFor(
    keys: readonly string[],
    timeoutMs: number,
    keepAlive: boolean,
    end: (error: Error | null) => void,
  ): (() => void) | null {
    const missing = new Set(keys.filter((key) => !this.values.has(key)));
    if (missing.size === 0) {
      end(null);
      return null;
    }
    let bytes = ENTRY_BYTES;
    for (const key of missing) bytes += costOf(key);
    this.charge(bytes, 'wait');
    const timer = setTimeout(() => {
      this.drop(waiter);
      end(waitedTooLong([...missing], timeoutMs));
    }, timeoutMs);
    if (!keepAlive) timer.unref();
    const waiter: Waiter = {
      missing,
      bytes,
      end: (error) => {
        clearTimeout(timer);
        end(error);
      },
    };
    this.waiters.add(waiter);
    for (const key of missing) {
      const others = this.waitersFor.get(key);
      if (others === undefined) this.waitersFor.set(key, new Set([waiter]));
      else others.add(waiter);
    }
    return () => {
      clearTimeout(timer);
      this.drop(waiter);
    };
  }

  /** Number of open waits. */
  get waits(): number {
    return this.waiters.size;
  }

  /** Ends all waits with the error. */
  endWaits(error: Error): void {
    for (const waiter of [...this.waiters]) {
      this.drop(waiter);
      waiter.end(error);
    }
  }

  private drop(waiter: Waiter): void {
    if (!this.waiters.delete(waiter)) return;
    this.bytes -= waiter.bytes;
    for (const key of waiter.missing) {
      const others = this.waitersFor.get(key);
      others?.delete(waiter);
      if (others?.size === 0) this.waitersFor.delete(key);
    }
  }

  /** Checks the limits before the value is built, so that a value too large costs nothing. */
  private checkRoom(key: string, length: number): void {
    if (length > this.longestValue) {
      throw new StoreError(
        `store: the value of ${quoted(key)} would have ${length} bytes, at most ` +
          `${this.longestValue} are kept`,
        { length, limit: this.longestValue },
      );
    }
    const before = this.values.get(key);
    const more = before === undefined ? costOf(key) + length : length - before.length;
    if (more > 0) this.charge(more, 'set');
    else this.bytes += more;
  }

  private charge(bytes: number, op: string): void {
    if (this.bytes + bytes > this.mostBytes) {
      throw new StoreError(
        `store: its keys, values and waits would take ${this.bytes + bytes} bytes, at most ` +
          `${this.mostBytes} are kept. Delete what is no longer read.`,
        {
          op,
          limit: this.mostBytes,
        },
      );
    }
    this.bytes += bytes;
  }

  private put(key: string, value: Buffer): Buffer {
    this.values.set(key, value);
    for (const waiter of this.waitersFor.get(key) ?? []) {
      waiter.missing.delete(key);
      if (waiter.missing.size > 0) continue;
      this.drop(waiter);
      waiter.end(null);
    }
    this.waitersFor.delete(key);
    return value;
  }

  private remove(key: string): boolean {
    const value = this.values.get(key);
    if (value === undefined) return false;
    this.bytes -= costOf(key) + value.length;
    return this.values.delete(key);
  }

  private numberAt(key: string): number {
    const value = this.values.get(key);
    if (value === undefined) return 0;
    const number = Number(value.toString());
    if (value.length > 0 && Number.isSafeInteger(number)) return number;
    throw new StoreError(
      `add: the value of ${quoted(key)} is not an integer: ` +
        `${JSON.stringify(value.toString().slice(0, 40))}`,
      { op: 'add', key },
    );
  }

  /** An absent key counts as an empty value, as in PyTorch. */
  private compareSet(key: string, expected: Buffer, desired: Buffer): Buffer {
    const present = this.values.get(key);
    if (present === undefined && expected.length > 0) return expected;
    if (present !== undefined && !present.equals(expected)) return present;
    this.checkRoom(key, desired.length);
    return this.put(key, desired);
  }
}

const NAMED_KEYS = 16;

/** A key for messages, shortened because a client may send a key of any length. */
const quoted = (key: string): string => `"${key.length > 200 ? `${key.slice(0, 200)}…` : key}"`;

/** The error of a wait that timed out. */
export function waitedTooLong(keys: readonly string[], timeoutMs: number): TimeoutError {
  const more = keys.length > NAMED_KEYS ? ` and ${keys.length - NAMED_KEYS} more` : '';
  const named = keys.slice(0, NAMED_KEYS).map(quoted).join(', ');
  return new TimeoutError(
    `store: nobody set ${named}${more} within ${timeoutMs} ms. Is every rank running, with the ` +
      'same store and prefix?',
    { op: 'wait', keys, timeoutMs },
  );
}
