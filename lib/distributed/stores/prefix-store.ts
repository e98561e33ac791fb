/** A namespace in another store. */
import { unexpected } from '../../core/options.js';
import type { StoreCommand, StoreReply } from './key-value-table.js';
import { Store } from './store.js';

/**
 * The keys of another store that begin with `prefix/`, so that the keys of groups do not collide.
 * It has its own timeout.
 *
 * @see PyTorch `torch.distributed.PrefixStore`
 */
export class PrefixStore extends Store {
  /** The text before each key. */
  readonly prefix: string;
  /** The store that holds the keys. */
  readonly underlyingStore: Store;

  /** @throws ArgumentError unless given a string and a store */
  constructor(prefix: string, store: Store) {
    if (typeof prefix !== 'string') throw unexpected('PrefixStore', 'prefix', 'a string', prefix);
    if (!(store instanceof Store)) throw unexpected('PrefixStore', 'store', 'a store', store);
    super(store.timeout);
    this.prefix = prefix;
    this.underlyingStore = store;
  }

  /** `PrefixStore('evaluation', HashStore(2 keys))` */
  override toString(): string {
    return `PrefixStore('${this.prefix}', ${this.underlyingStore})`;
  }

  private inner = (key: string): string => `${this.prefix}/${key}`;

  /** @internal */
  run(command: StoreCommand): Promise<StoreReply> {
    if (command.op === 'count') return this.underlyingStore.run(command);
    if (command.op === 'check')
      return this.underlyingStore.run({ op: 'check', keys: command.keys.map(this.inner) });
    return this.underlyingStore.run({ ...command, key: this.inner(command.key) });
  }

  /** @internal */
  whenSet(keys: readonly string[], timeoutMs: number): Promise<void> {
    return this.underlyingStore.whenSet(keys.map(this.inner), timeoutMs);
  }

  /** @internal */
  override quietly(): Store | null {
    const quiet = this.underlyingStore.quietly();
    return quiet === null ? null : new PrefixStore(this.prefix, quiet);
  }

  /** @internal */
  override holds(keys: readonly string[]): boolean | null {
    return this.underlyingStore.holds(keys.map(this.inner));
  }
}
