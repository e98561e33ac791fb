/** A store in the memory of this process. */
import { KeyValueTable, type StoreCommand, type StoreReply } from './key-value-table.js';
import { Store } from './store.js';

/**
 * Keys and values in this process, for `local` ranks and tests.
 *
 * @see PyTorch `torch.distributed.HashStore`
 */
export class HashStore extends Store {
  private readonly table = new KeyValueTable();

  /** `HashStore(2 keys)` */
  override toString(): string {
    const keys = this.table.apply({ op: 'count' });
    return `${this.constructor.name}(${keys} ${keys === 1 ? 'key' : 'keys'})`;
  }

  /** @internal */
  async run(command: StoreCommand): Promise<StoreReply> {
    return this.table.apply(command);
  }

  /** @internal */
  whenSet(keys: readonly string[], timeoutMs: number): Promise<void> {
    return this.table.whenSet(keys, timeoutMs);
  }

  /** @internal */
  override holds(keys: readonly string[]): boolean {
    return this.table.apply({ op: 'check', keys }) === true;
  }
}
