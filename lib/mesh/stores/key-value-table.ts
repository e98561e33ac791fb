/** What every store keeps: keys, values, and who waits for a key. Commands are applied one at a time. */
import { StoreError, TimeoutError } from '../../core/errors.js';

/** A change of one key, or a question. All but `get`, `check` and `count` change the table. */
export type StoreCommand =
  | { readonly op: 'set' | 'append'; readonly key: string; readonly value: Buffer }
  | { readonly op: 'add'; readonly key: string; readonly amount: number }
  | { readonly op: 'compareSet'; readonly key: string; readonly expected: Buffer; readonly desired: Buffer }
  | { readonly op: 'get' | 'delete'; readonly key: string }
  | { readonly op: 'check'; readonly keys: readonly string[] }
  | { readonly op: 'count' };

/** What a command answers: a value (null: no such key), a number, or whether. */
export type StoreReply = Buffer | number | boolean | null;

/** Keys of the stores themselves; not counted. */
export const OWN_KEYS = '.shardwise/';

interface Waiter {
  readonly missing: Set<string>;
  /** With what keeps the keys from coming, or null. */
  readonly end: (error: Error | null) => void;
}

/** Keys and values in memory. */
export class KeyValueTable {
  private readonly values = new Map<string, Buffer>();
  private readonly waiters = new Set<Waiter>();

  /** @throws StoreError where a value is no number to add to */
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
        return this.values.delete(command.key);
      case 'set':
        return this.put(command.key, command.value);
      case 'append':
        return this.put(command.key, Buffer.concat([this.values.get(command.key) ?? Buffer.alloc(0), command.value])).length;
      case 'add': {
        const before = this.numberAt(command.key);
        const sum = before + command.amount;
        if (!Number.isSafeInteger(sum)) {
          throw new StoreError(`add: ${before} and ${command.amount} at "${command.key}" add up to more than 2^53 - 1, up to which integers are exact`, {
            op: 'add',
            key: command.key,
          });
        }
        this.put(command.key, Buffer.from(String(sum)));
        return sum;
      }
      case 'compareSet':
        return this.compareSet(command.key, command.expected, command.desired);
    }
  }

  /** Resolves when all keys are there. Unless `keepAlive`, the process may end meanwhile. @throws TimeoutError naming those that are not */
  whenSet(keys: readonly string[], timeoutMs: number, keepAlive = true): Promise<void> {
    const missing = new Set(keys.filter((key) => !this.values.has(key)));
    if (missing.size === 0) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.waiters.delete(waiter);
        reject(waitedTooLong([...missing], timeoutMs));
      }, timeoutMs);
      if (!keepAlive) timer.unref();
      const waiter: Waiter = {
        missing,
        end: (error) => {
          clearTimeout(timer);
          if (error === null) resolve();
          else reject(error);
        },
      };
      this.waiters.add(waiter);
    });
  }

  /** Everybody who waits gets the error. */
  endWaits(error: Error): void {
    for (const waiter of this.waiters) waiter.end(error);
    this.waiters.clear();
  }

  private put(key: string, value: Buffer): Buffer {
    this.values.set(key, value);
    for (const waiter of this.waiters) {
      if (!waiter.missing.delete(key) || waiter.missing.size > 0) continue;
      this.waiters.delete(waiter);
      waiter.end(null);
    }
    return value;
  }

  private numberAt(key: string): number {
    const value = this.values.get(key);
    if (value === undefined) return 0;
    const number = Number(value.toString());
    if (value.length > 0 && Number.isSafeInteger(number)) return number;
    throw new StoreError(`add: the value of "${key}" is no integer: ${JSON.stringify(value.toString().slice(0, 40))}`, { op: 'add', key });
  }

  /** An absent key counts as an empty value, as in PyTorch. */
  private compareSet(key: string, expected: Buffer, desired: Buffer): Buffer {
    const present = this.values.get(key);
    if (present === undefined && expected.length > 0) return expected;
    if (present === undefined || present.equals(expected)) return this.put(key, desired);
    return present;
  }
}

/** The error of a wait that was not over in time. */
export function waitedTooLong(keys: readonly string[], timeoutMs: number): TimeoutError {
  const named = keys.map((key) => `"${key}"`).join(', ');
  return new TimeoutError(`store: nobody set ${named} within ${timeoutMs} ms. Is every rank running, with the same store and prefix?`, { op: 'wait', keys, timeoutMs });
}
