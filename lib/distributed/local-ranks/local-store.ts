/** The store of `local` ranks: one table in memory, whose waits end when a rank fails. */
import { DistributedError } from '../../core/errors.js';
import type { RankRuntime } from '../../core/rank-runtime.js';
import { KeyValueTable, type StoreCommand, type StoreReply } from '../stores/key-value-table.js';
import { Store } from '../stores/store.js';

/** The table that the stores of a world share. @internal */
export class LocalTable {
  readonly values = new KeyValueTable();
  ended: string | null = null;

  /** Ends all waits, because no rank will set more keys. */
  end(reason: string): void {
    this.ended ??= reason;
    this.values.endWaits(this.failure());
  }

  failure(): DistributedError {
    return new DistributedError(`store: waiting for keys has ended: ${this.ended}`);
  }
}

/** One rank's view of the table. @internal */
export class LocalStore extends Store {
  private readonly table: LocalTable;
  private readonly runtime: RankRuntime;

  constructor(table: LocalTable, runtime: RankRuntime, timeoutMs: number) {
    super(timeoutMs);
    this.table = table;
    this.runtime = runtime;
  }

  override toString(): string {
    return 'LocalStore(of ranks in one process)';
  }

  async run(command: StoreCommand): Promise<StoreReply> {
    await this.runtime.turns?.wait(`store.${command.op}`, null, () => true);
    return this.table.values.apply(command);
  }

  /** Takes turns in {@link whenSet}, because the world may end during the wait. */
  protected override until(keys: readonly string[], timeoutMs: number | null): Promise<void> {
    return this.whenSet(keys, timeoutMs ?? this.timeoutMs);
  }

  async whenSet(keys: readonly string[], timeoutMs: number): Promise<void> {
    const { table, runtime } = this;
    const isThere = (): boolean => table.values.apply({ op: 'check', keys }) === true;
    if (runtime.turns?.ordered === true)
      await runtime.turns.wait(
        `store.wait for ${keys.map((key) => `"${key}"`).join(', ')}`,
        null,
        () => isThere() || table.ended !== null,
      );
    if (isThere()) return;
    if (table.ended !== null) throw table.failure();
    await table.values.whenSet(keys, timeoutMs);
  }
}
