/**
 * The context of local ranks: devices, random numbers and default device belong to the rank,
 * wherever its code runs.
 */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { runLocalRanks } from '../../../lib/distributed/local-ranks/run.js';
import { findContext } from '../../../lib/distributed/process-group/rank-context.js';
import {
  allReduce,
  barrier,
  DistributedError,
  getRank,
  getWorldSize,
  isInitialized,
} from '../../../lib/distributed.js';
import {
  ArgumentError,
  device,
  getDefaultDevice,
  initialSeed,
  manualSeed,
  ones,
  rand,
  randn,
  setDefaultDevice,
  zeros,
} from '../../../lib/index.js';
import { errorOf, onRanks, valuesOf } from '../support/on-ranks.js';

describe('the rank of the running code', () => {
  it('is found in promises, timers, ticks and events', async () => {
    await onRanks(3, async (rank) => {
      const found: number[] = [getRank()];
      await Promise.resolve();
      found.push(getRank());
      await sleep(3 - rank);
      found.push(getRank());
      await new Promise<void>((resolve) =>
        setTimeout(() => resolve(void found.push(getRank())), rank),
      );
      await new Promise<void>((resolve) =>
        process.nextTick(() => resolve(void found.push(getRank()))),
      );
      await new Promise<void>((resolve) =>
        queueMicrotask(() => resolve(void found.push(getRank()))),
      );
      await zeros([1])
        .read()
        .then(() => found.push(getRank()));
      await Promise.all(
        [1, 2].map(async (ms) => found.push(await sleep(ms).then(() => getRank()))),
      );
      assert.deepEqual(new Set(found), new Set([rank]));
      assert.equal(getWorldSize(), 3);
    });
  });

  it('is absent in the main program, also while ranks run and after', async () => {
    assert.equal(isInitialized(), false);
    const running = onRanks(2, async () => {
      await sleep(5);
      return getRank();
    });
    assert.equal(isInitialized(), false);
    assert.throws(() => getRank(), DistributedError);
    assert.equal(zeros([1]).device, device('cpu'));
    assert.deepEqual(await running, [0, 1]);
    assert.equal(isInitialized(), false);
  });

  it('belongs to its own world if several worlds run at a time, or a rank runs ranks', async () => {
    const sums = await Promise.all(
      [2, 3].map((size) =>
        onRanks(size, async (rank) => {
          const inner = await onRanks(2, async () => {
            const x = ones([1]);
            allReduce(x);
            return (await valuesOf(x))[0] as number;
          });
          assert.deepEqual(inner, [2, 2]);
          assert.equal(getRank(), rank);
          const x = ones([1]);
          allReduce(x);
          return (await valuesOf(x))[0];
        }),
      ),
    );
    assert.deepEqual(sums, [
      [2, 2],
      [3, 3, 3],
    ]);
  });
});

describe('the random numbers of a local rank', () => {
  it('do not depend on what other ranks draw in between', async () => {
    const drawn = await onRanks(3, async (rank) => {
      manualSeed(rank === 2 ? 8 : 7);
      const first = rand([3]);
      await barrier();
      if (rank === 1) for (let i = 0; i < rank * 5; i++) rand([2]).dispose();
      await barrier();
      assert.equal(initialSeed(), rank === 2 ? 8 : 7);
      return [await valuesOf(first), await valuesOf(rank === 1 ? first : randn([3]))];
    });
    assert.deepEqual(drawn[0]?.[0], drawn[1]?.[0]);
    assert.notDeepEqual(drawn[0]?.[0], drawn[2]?.[0]);
    manualSeed(7);
    assert.deepEqual(Array.from(rand([3]).toTypedArray() as Float32Array), drawn[0]?.[0]);
    assert.deepEqual(Array.from(randn([3]).toTypedArray() as Float32Array), drawn[0]?.[1]);
  });

  it('do not advance those of the main program', async () => {
    manualSeed(3);
    const first = rand([2]).tolist();
    await onRanks(2, async () => void manualSeed(99));
    const second = rand([2]).tolist();
    manualSeed(3);
    assert.deepEqual([rand([2]).tolist(), rand([2]).tolist()], [first, second]);
  });
});

describe('the devices of a local rank', () => {
  it('are separate from those of other ranks under the same names', async () => {
    const devices = await onRanks(2, async () => {
      setDefaultDevice('cpu');
      assert.equal(getDefaultDevice(), device('cpu'));
      assert.equal(zeros([1]).device, device('cpu'));
      assert.equal(String(device('cpu')), 'cpu');
      assert.equal(device('cpu'), device(device('cpu')));
      return device('cpu');
    });
    assert.notEqual(devices[0], devices[1]);
    assert.notEqual(devices[0], device('cpu'));
    assert.equal(String(devices[1]), 'cpu of rank 1');
  });
});

describe('runLocalRanks', () => {
  it('returns the results of the ranks in rank order', async () => {
    assert.deepEqual(await onRanks(3, async (rank, size) => `${rank}/${size}`), [
      '0/3',
      '1/3',
      '2/3',
    ]);
    assert.deepEqual(await onRanks(1, () => 'not async'), ['not async']);
  });

  it('refuses an invalid world size, function or option', async () => {
    for (const size of [0, -1, 0.5, 65, '2', Number.NaN])
      assert.ok(
        (await errorOf(onRanks(size as number, async () => 0))) instanceof ArgumentError,
        String(size),
      );
    assert.ok((await errorOf(onRanks(2, 'script.ts' as never))) instanceof ArgumentError);
    for (const options of [
      { timeoutMs: 0 },
      { timeoutMs: '5' },
      { timeout: 5 },
      { timeoutMs: 5, seed: -1 },
      { timeoutMs: 5, seed: 'x' },
    ]) {
      assert.ok(
        (await errorOf(runLocalRanks(2, async () => 0, options as never))) instanceof ArgumentError,
      );
    }
  });

  it('fails with the first failed rank, also for a synchronous throw and for a value that is not an Error', async () => {
    const thrown = await errorOf(
      onRanks(2, (rank) => {
        if (rank === 1) throw 'text';
        return barrier();
      }),
    );
    assert.ok(
      thrown instanceof DistributedError &&
        thrown.message === 'rank 1 failed: text' &&
        thrown.cause === 'text',
    );
  });

  it('ends waits in the store when a rank fails', async () => {
    const begin = Date.now();
    await errorOf(
      onRanks(2, async (rank) => {
        if (rank === 1) throw new Error('boom');
        await findContext()?.store?.get('never');
      }),
    );
    assert.ok(Date.now() - begin < 1000);
  });
});
