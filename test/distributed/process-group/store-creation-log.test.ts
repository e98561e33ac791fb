/** The creation log through which processes compare their groups and meshes. */
import assert from 'node:assert/strict';
import type {
  CreationMismatch,
  GroupCreation,
} from '../../../lib/distributed/process-group/diagnosis/creation-log.js';
import { StoreCreationLog } from '../../../lib/distributed/process-group/diagnosis/store-creation-log.js';
import { HashStore, type Store } from '../../../lib/distributed.js';
import { TimeoutError } from '../../../lib/index.js';

/**
 * Keeps what was stored; whoever waits for a key hears of it only once `hears` is called, as a
 * process does that has too much to do.
 */
class SlowStore extends HashStore {
  private readonly waiting: (() => void)[] = [];

  hears(): void {
    for (const resolve of this.waiting.splice(0)) resolve();
  }

  override quietly(): Store {
    return this;
  }

  /** A value that somebody asks for is there, or will not come in time. */
  override whenSet(keys: readonly string[], timeoutMs: number): Promise<void> {
    if (this.holds(keys)) return Promise.resolve();
    const waits = timeoutMs > 1e9;
    return waits
      ? new Promise<void>((resolve) => this.waiting.push(resolve))
      : Promise.reject(new TimeoutError(`no ${keys}`));
  }
}

const creation = (rank: number, key: string, place: string): GroupCreation => ({
  rank,
  number: 1,
  op: 'initDeviceMesh',
  where: `train.ts:${rank}`,
  group: 'world',
  what: `mesh ${key}`,
  short: key,
  place,
  key,
  rule: 'All ranks make the same meshes',
});

describe('the creation log in a store', () => {
  let store: SlowStore;
  const boards: StoreCreationLog[] = [];
  const boardOf = (): StoreCreationLog => {
    const creationLog = StoreCreationLog.over(store) as StoreCreationLog;
    boards.push(creationLog);
    return creationLog;
  };
  /** What the rank hears of a mesh that it makes. */
  const make = (
    creationLog: StoreCreationLog,
    rank: number,
    key: string,
    place = 'mesh 0',
  ): CreationMismatch[] => {
    const heard: CreationMismatch[] = [];
    const own = creation(rank, key, place);
    creationLog.record(own);
    creationLog.publish(own, (mismatch) => heard.push(mismatch));
    return heard;
  };
  /** Whatever a store in memory has to do by then is done. */
  const turns = async (): Promise<void> => {
    for (let i = 0; i < 20; i++) await new Promise(setImmediate);
  };

  beforeEach(() => {
    store = new SlowStore();
  });

  afterEach(() => {
    for (const creationLog of boards.splice(0)) creationLog.leave();
    store.hears();
  });

  it('finds a mismatch that other ranks have published before this rank has read it', async () => {
    const [first, other] = [boardOf(), boardOf()];
    const heard = make(first, 0, 'ab');
    assert.equal(await first.mismatchFound('mesh 0'), null);
    make(other, 1, 'ba');
    const found = await other.mismatchFound('mesh 0');
    assert.match(
      found?.error.message ?? '',
      /rank 0 created mesh ab at train\.ts:0, this rank ba at train\.ts:1/,
    );

    assert.deepEqual(heard, [], 'it has not heard of it');
    const late = await first.mismatchFound('mesh 0');
    assert.match(
      late?.error.message ?? '',
      /rank 1 created mesh ba at train\.ts:1, this rank ab at train\.ts:0/,
    );
    assert.equal(await first.mismatchFound('mesh 1'), null);
  });

  it('reports each mismatch once, although several calls ask for it at a time', async () => {
    const [first, other] = [boardOf(), boardOf()];
    const heard = [make(first, 0, 'ab', 'mesh 0'), make(first, 0, 'cd', 'mesh 1')];
    for (const [i, key] of ['ba', 'dc'].entries()) make(other, 1, key, `mesh ${i}`);
    await turns();
    const asked = [first.mismatchFound('mesh 0'), first.mismatchFound('mesh 1')];
    await Promise.resolve();
    store.hears();
    const late = [...(await Promise.all(asked)), await first.mismatchFound('mesh 1')];
    assert.deepEqual(
      late.map((each) => each?.rank),
      [1, 1, 1],
    );
    store.hears();
    await turns();
    assert.deepEqual(
      heard.map((each) => each.length),
      [1, 1],
    );
  });

  it('finds later mismatches after an early one', async () => {
    const [first, other] = [boardOf(), boardOf()];
    make(first, 0, 'ab', 'mesh 0');
    make(other, 1, 'ba', 'mesh 0');
    await turns();
    await first.mismatchFound('mesh 0');
    store.hears();
    await turns();
    const heard = make(first, 0, 'cd', 'mesh 1');
    make(other, 1, 'dc', 'mesh 1');
    await turns();
    store.hears();
    await turns();
    assert.equal(heard.length, 1);
  });

  it('stops reading once the rank has left', async () => {
    const [first, other] = [boardOf(), boardOf()];
    make(first, 0, 'ab');
    make(other, 1, 'ba');
    await turns();
    first.leave();
    assert.equal(await first.mismatchFound('mesh 0'), null);
  });
});
