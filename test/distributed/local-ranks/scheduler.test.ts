/** Schedules from a seed: reproducible, varied, and with immediate detection of deadlocks. */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import type { RankTurn } from '../../../lib/distributed/local-ranks/scheduler.js';
import { contextOf } from '../../../lib/distributed/process-group/rank-context.js';
import type { Store } from '../../../lib/distributed/stores/index.js';
import {
  allGather,
  allReduce,
  barrier,
  broadcast,
  DistributedError,
  destroyProcessGroup,
  newGroup,
  recv,
  send,
} from '../../../lib/distributed.js';
import { full, ones, type Tensor, tensor, zeros } from '../../../lib/index.js';
import { errorOf, onRanks, valuesOf } from '../support/on-ranks.js';

const store = (): Store => contextOf('test').store as Store;
const seeds = (count: number): number[] => Array.from({ length: count }, (_, seed) => seed);

/** Collectives in the world and in a group, several values at once, messages, the store. */
async function program(rank: number, size: number): Promise<number[]> {
  const x = full([3], rank + 1);
  const work = allReduce(x, { asyncOp: true });
  const pair = newGroup([0, size - 1]);
  const results: number[] = [...(await valuesOf(x))];
  await work.wait();
  if (pair.rank >= 0) {
    const y = tensor([rank]);
    broadcast(y, size - 1, { group: pair });
    results.push(await y.itemAsync());
  }
  const list = Array.from({ length: size }, () => zeros([1]));
  allGather(list, tensor([10 * rank]));
  results.push(...(await Promise.all(list.map((t) => t.itemAsync()))));
  if (rank > 0) send(tensor([rank, rank]), rank - 1);
  const message = zeros([2]);
  if (rank < size - 1) recv(message, rank + 1);
  await store().set(`key ${rank}`, String(rank));
  results.push(Number(await store().get(`key ${size - 1 - rank}`)));
  await barrier();
  return [...results, ...(await valuesOf(message))];
}

function expected(rank: number, size: number): number[] {
  const sum = (size * (size + 1)) / 2;
  const next = rank < size - 1 ? rank + 1 : 0;
  return [
    sum,
    sum,
    sum,
    ...(rank === 0 || rank === size - 1 ? [size - 1] : []),
    ...Array.from({ length: size }, (_, r) => 10 * r),
    size - 1 - rank,
    next,
    next,
  ];
}

async function traceOf(
  seed: number,
  fn: (rank: number, size: number) => Promise<unknown>,
  size = 3,
): Promise<{ trace: string; results: unknown[] }> {
  const turns: RankTurn[] = [];
  const results = await onRanks(size, fn, { seed, onTurn: (turn) => turns.push(turn) });
  return { trace: turns.map(({ rank, what }) => `${rank} ${what}`).join('\n'), results };
}

describe('the schedule of ranks from a seed', () => {
  it('gives right values in many different orders', async () => {
    const traces = new Set<string>();
    for (const seed of seeds(200)) {
      const { trace, results } = await traceOf(seed, program);
      assert.deepEqual(
        results,
        [0, 1, 2].map((rank) => expected(rank, 3)),
        `seed ${seed}`,
      );
      traces.add(trace);
    }
    assert.ok(traces.size > 190, String(traces.size));
  });

  it('is the same for the same seed, whatever the timing', async () => {
    const slow = async (rank: number, size: number): Promise<number[]> => {
      await sleep(Math.random() * 3);
      const values = await program(rank, size);
      await sleep(Math.random() * 3);
      return values;
    };
    for (const seed of seeds(8)) {
      const first = await traceOf(seed, program, 4);
      assert.deepEqual(await traceOf(seed, program, 4), first);
      assert.deepEqual(await traceOf(seed, slow, 4), first);
    }
  });

  it('finds a race, and reproduces it', async () => {
    const race = (seed: number): Promise<number[]> => {
      let shared = 0;
      return onRanks(
        3,
        async (rank) => {
          const seen = shared; // read, wait, write
          await ones([1]).read();
          shared = seen + 1;
          await barrier();
          return shared + 0 * rank;
        },
        { seed },
      );
    };
    const outcomes = new Map<number, number>();
    for (const seed of seeds(30)) outcomes.set(seed, (await race(seed))[0] as number);
    assert.ok(new Set(outcomes.values()).size >= 2, [...outcomes.values()].join(' '));
    for (const seed of seeds(30)) assert.equal((await race(seed))[0], outcomes.get(seed));
  });

  it('draws the order of concurrent store calls', async () => {
    const winners = new Set<string>();
    for (const seed of seeds(20)) {
      const order = await onRanks(3, async (rank) => [rank, await store().add('place', 1)], {
        seed,
      });
      winners.add(order.map(([, place]) => place).join(''));
    }
    assert.ok(winners.size >= 5, [...winners].join(' '));
  });

  it('runs one rank at a time between waits', async () => {
    for (const seed of seeds(20)) {
      let inside = 0;
      await onRanks(
        4,
        async () => {
          for (let i = 0; i < 3; i++) {
            assert.equal(inside++, 0);
            for (let tick = 0; tick < 5; tick++) await Promise.resolve();
            await new Promise((resolve) => process.nextTick(resolve));
            assert.equal(inside--, 1);
            await ones([1]).read();
          }
        },
        { seed },
      );
    }
  });
});

describe('a deadlock with a seed', () => {
  const deadlocks: [string, (rank: number) => Promise<void>, RegExp[]][] = [
    [
      'of a rank that reads what another never calls',
      async (rank) => {
        const x = ones([1]);
        if (rank === 0) allReduce(x);
        await x.read();
        if (rank === 1) await store().get('never');
      },
      [
        /rank 0 waits in read at .*scheduler\.test\.[jt]s:\d+:\d+\)?: the allReduce of group "world" that came before rank 1 has not called yet/,
        /rank 1 waits in store\.wait for "never" at .*scheduler\.test/,
      ],
    ],
    [
      'of two ranks that wait for each other in the store',
      async (rank) => {
        await store().get(`key ${rank}`);
        await store().set(`key ${1 - rank}`, 'x');
      },
      [/rank 0 waits in store\.wait for "key 0"/, /rank 1 waits in store\.wait for "key 1"/],
    ],
    [
      'of a rank that receives what nobody sends',
      async (rank) => {
        const x = zeros([1]);
        if (rank === 0) recv(x, 1);
        else await store().get('never');
        await x.read();
      },
      [
        /rank 0 waits in read .*the recv of group "world" that came before rank 1 has not called yet/,
      ],
    ],
  ];
  for (const [what, fn, texts] of deadlocks) {
    it(`is reported at once with the wait of each rank: ${what}`, async () => {
      const begin = Date.now();
      const error = await errorOf(onRanks(2, fn, { seed: 5, timeoutMs: 60_000 }));
      assert.ok(Date.now() - begin < 2000);
      assert.ok(error instanceof DistributedError);
      assert.match(
        error.message,
        /^deadlock: no rank can continue, in the order drawn from seed 5/,
      );
      for (const text of texts) assert.match(error.message, text);
    });
  }

  it('is not reported if calls fail with their group, or a rank has left', async () => {
    for (const seed of seeds(10)) {
      await onRanks(
        2,
        async (rank) => {
          const group = newGroup();
          const x = zeros([1 + rank]);
          allReduce(x, { group });
          await assert.rejects(x.read(), /called allReduce of/);
          const y = zeros([1]);
          if (rank === 0) {
            allReduce(y, { group });
            await assert.rejects(y.read(), /the group has failed before/);
          }
          const other = newGroup();
          if (rank === 1) destroyProcessGroup(other);
          else {
            const z = zeros([1]);
            allReduce(z, { group: other });
            await assert.rejects(z.read(), /rank 1 has left the group/);
          }
          const last = ones([1]);
          allReduce(last);
          assert.deepEqual(await valuesOf(last), [2]);
        },
        { seed },
      );
    }
  });

  it('is not reported because of a failed rank', async () => {
    for (const seed of seeds(10)) {
      const seen: string[] = [];
      const error = await errorOf(
        onRanks(
          3,
          async (rank) => {
            const x = ones([1]);
            if (rank === 1) {
              await x.read();
              throw new Error('boom');
            }
            if (rank === 2)
              await store()
                .get('never')
                .catch((reason: Error) => seen.push(reason.message));
            else await readAfter(x).catch((reason: Error) => seen.push(reason.message));
          },
          { seed },
        ),
      );
      assert.equal(error.message, `rank 1 failed (in the order drawn from seed ${seed}): boom`);
      assert.ok(
        seen.length === 2 && seen.every((text) => /rank 1 failed: boom/.test(text)),
        seen.join('\n'),
      );
    }
  });
});

function readAfter(x: Tensor): Promise<unknown> {
  allReduce(x);
  return x.read();
}
