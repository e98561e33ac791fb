/** What ranks that are processes hear of each other's groups and meshes, over a store. */
import assert from 'node:assert/strict';
import { HashStore, type Store } from '../../lib/distributed.js';
import type { Difference, Making } from '../../lib/mesh/makings.js';
import { StoreBoard } from '../../lib/mesh/store-board.js';

/** Keeps what was stored; whoever waits for a key hears of it only once `hears` is called, as a process does that has too much to do. */
class SlowStore extends HashStore {
  private readonly waiting: (() => void)[] = [];

  hears(): void {
    for (const resolve of this.waiting.splice(0)) resolve();
  }

  override quietly(): Store {
    return this;
  }

  override whenSet(keys: readonly string[], timeoutMs: number): Promise<void> {
    return this.holds(keys) ? super.whenSet(keys, timeoutMs) : new Promise<void>((resolve) => this.waiting.push(resolve));
  }
}

const making = (rank: number, key: string): Making => ({
  rank,
  number: 1,
  op: 'initDeviceMesh',
  where: `train.ts:${rank}`,
  group: 'world',
  what: `mesh ${key}`,
  short: key,
  place: 'mesh 0',
  key,
  rule: 'All ranks make the same meshes',
});

describe('a board over a store', () => {
  const store = new SlowStore();
  const made = (rank: number, key: string): { board: StoreBoard; heard: Difference[] } => {
    const board = StoreBoard.over(store) as StoreBoard;
    const heard: Difference[] = [];
    const own = making(rank, key);
    board.record(own);
    board.announce(own, (difference) => heard.push(difference));
    return { board, heard };
  };

  it('finds a difference that others have told, before this rank has come to hear of it, and tells it once', async () => {
    const first = made(0, 'ab');
    assert.equal(await first.board.differenceFound('mesh 0'), null);
    const other = made(1, 'ba');
    const found = await other.board.differenceFound('mesh 0');
    assert.match(found?.error.message ?? '', /rank 0 has made mesh ab at train\.ts:0, this rank ba at train\.ts:1/);

    assert.deepEqual(first.heard, [], 'it has not heard of it');
    const late = await first.board.differenceFound('mesh 0');
    assert.match(late?.error.message ?? '', /rank 1 has made mesh ba at train\.ts:1, this rank ab at train\.ts:0/);
    store.hears();
    await new Promise(setImmediate);
    assert.equal(first.heard.length, 1);
    assert.equal(await first.board.differenceFound('mesh 1'), null);
    for (const { board } of [first, other]) board.leave();
  });
});
