/** A store in the memory of this process. */
import { KeyValueTable, type StoreCommand, type StoreReply } from './key-value-table.js';
import { Store } from './store.js';

/**
 * Keys and values in this process: for `local` ranks, which share it, and tests.
 *
 * @see PyTorch `torch.distributed.HashStore`
 */
export class HashStore extends Store {
  private readonly table = new KeyValueTable();

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
