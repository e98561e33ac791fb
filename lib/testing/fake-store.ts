/** A store for fake worlds, whose other ranks do not exist. */
import { HashStore } from '../distributed/stores/hash-store.js';
import type { StoreCommand, StoreReply } from '../distributed/stores/key-value-table.js';

/**
 * Keeps values and never waits: a key that was not set has an empty value.
 *
 * @see PyTorch `torch.testing._internal.distributed.fake_pg.FakeStore`
 */
export class FakeStore extends HashStore {
  /** @internal */
  override async run(command: StoreCommand): Promise<StoreReply> {
    const reply = await super.run(command);
    return command.op === 'get' && reply === null ? Buffer.alloc(0) : reply;
  }

  /** @internal */
  override async whenSet(): Promise<void> {}
}
