/** Stores of the program in local ranks: timeouts, and waits with a seed. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import {
  FileStore,
  HashStore,
  launch,
  PrefixStore,
  type Store,
  TCPStore,
  TimeoutError,
} from '../../../lib/distributed.js';
import { errorOf } from '../support/on-ranks.js';

const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-stores-of-ranks-'));
after(() => rmSync(folder, { recursive: true }));

/** One store for all ranks, made before they are. */
const shared: Record<string, () => Promise<Store>> = {
  HashStore: async () => new HashStore(),
  PrefixStore: async () => new PrefixStore('a', new PrefixStore('b', new HashStore())),
  FileStore: async () => new FileStore(path.join(folder, 'shared')),
  TCPStore: async () => new TCPStore('127.0.0.1', 0, { isServer: true }).ready(),
};

for (const [kind, make] of Object.entries(shared)) {
  describe(`a ${kind} that local ranks share`, () => {
    let store: Store;
    beforeEach(async () => {
      store = await make();
    });
    afterEach(() => store.close());

    it("waits at most as long as the world's timeout, unless it has its own", async () => {
      const begin = Date.now();
      const error = await errorOf(
        launch(2, async (rank) => void (await store.get(`x${rank}`)), { timeoutMs: 200 }),
      );
      assert.ok(
        error.cause instanceof TimeoutError &&
          /nobody set "(b\/a\/)?x\d" within 200 ms/.test(error.cause.message),
        error.message,
      );
      assert.ok(Date.now() - begin < 2000);
      store.setTimeout(50);
      await assert.rejects(
        launch(2, async (rank) => void (await store.get(`x${rank}`)), { timeoutMs: 10_000 }),
        /within 50 ms/,
      );
      assert.equal((await make()).timeoutMs, 300_000);
    });

    it('lets other ranks run while it waits, with a seed', async () => {
      for (let seed = 0; seed < 6; seed++) {
        const get = async (rank: number): Promise<string> => {
          if (rank === 0) return String(await store.get(`key ${seed}`));
          await store.wait([`other ${seed}`], 20).catch(() => {}); // ends by itself: no deadlock
          await store.set(`key ${seed}`, 'value');
          return '';
        };
        assert.deepEqual(await launch(2, get, { seed, timeoutMs: 5000 }), ['value', '']);
      }
    });
  });
}

describe('a deadlock in a store of the program', () => {
  const shared = new HashStore();
  const stores: Record<string, () => Store> = {
    'a HashStore of each rank': () => new HashStore(),
    'a HashStore of all': () => shared,
    'a PrefixStore': () => new PrefixStore('p', shared),
  };
  for (const [name, make] of Object.entries(stores)) {
    it(`is reported at once with a seed: ${name}`, async () => {
      const begin = Date.now();
      const error = await errorOf(
        launch(2, async (rank) => void (await make().get(`x${rank}`)), { seed: 4 }),
      );
      assert.match(
        error.message,
        /^deadlock: no rank can continue.*rank 0 waits in store\.wait for "x0" at .*rank 1 waits in store\.wait for "x1"/s,
      );
      assert.ok(Date.now() - begin < 2000);
    });
  }
});
