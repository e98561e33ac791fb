/**
 * Failed starts without a launcher: every rank names the cause, even if the store closes with rank
 * 0.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { rendezvous } from '../../../lib/distributed/launch/rendezvous.js';
import {
  environmentStoreText,
  StartFailures,
  storeFailure,
} from '../../../lib/distributed/launch/start-failure.js';
import {
  DistributedError,
  HashStore,
  type InitOptions,
  initProcessGroup,
  StoreError,
  TCPStore,
  TimeoutError,
} from '../../../lib/distributed.js';
import { programArguments } from '../../run-program.js';
import { errorOf } from '../support/on-ranks.js';

interface Said {
  readonly name: string;
  readonly message: string;
  readonly details: Readonly<Record<string, unknown>>;
}

interface Started {
  readonly child: ChildProcess;
  readonly said: Promise<Said>;
}

const children: ChildProcess[] = [];

function start(rank: number, worldSize: number, port: number, timeoutMs: number): Started {
  const variables = {
    RANK: rank,
    WORLD_SIZE: worldSize,
    MASTER_ADDR: '127.0.0.1',
    MASTER_PORT: port,
  };
  const child = spawn(
    process.execPath,
    [
      ...programArguments('distributed/programs/by-environment'),
      JSON.stringify(variables),
      String(timeoutMs),
    ],
    {
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  );
  children.push(child);
  let text = '';
  child.stdout.on('data', (chunk) => {
    text += String(chunk);
  });
  return {
    child,
    said: new Promise((resolve) =>
      child.once('close', () =>
        resolve(text === '' ? { name: '', message: '', details: {} } : (JSON.parse(text) as Said)),
      ),
    ),
  };
}

async function freePort(): Promise<number> {
  const store = await new TCPStore('127.0.0.1', 0, { isServer: true }).ready();
  await store.close();
  return store.port;
}

/** Until these ranks have said in the store who they are. */
async function untilThere(port: number, ranks: readonly number[]): Promise<void> {
  const store = await new TCPStore('127.0.0.1', port, { timeoutMs: 20_000 }).ready();
  for (;;) {
    const text = (await store.check(['shardwise/0/0/present']))
      ? String(await store.get('shardwise/0/0/present'))
      : '';
    if (ranks.every((rank) => text.split(' ').includes(String(rank)))) break;
    await sleep(20);
  }
  await store.close();
}

describe('a failed start without a launcher', function () {
  this.timeout(60_000);
  afterEach(() => {
    for (const child of children.splice(0)) child.kill('SIGKILL');
  });

  it('names rank 0 and initProcessGroup if rank 0 is killed after others have connected', async () => {
    const port = await freePort();
    const [keeper, ...others] = [0, 1, 2].map((rank) => start(rank, 4, port, 30_000)) as [
      Started,
      ...Started[],
    ];
    await untilThere(port, [0, 1, 2]);
    keeper.child.kill('SIGKILL');
    for (const [i, { said }] of others.entries()) {
      const { name, message, details } = await said;
      assert.equal(name, 'DistributedError');
      assert.match(
        message,
        new RegExp(
          `^initProcessGroup: rank 0 has ended, or has left, while the ranks were starting, and its store at 127\\.0\\.0\\.1:${port} with it .this is rank ${i + 1} of 4`,
        ),
      );
      assert.deepEqual(details['ranks'], [0]);
    }
  });

  it('names the missing rank on all ranks as soon as the first rank times out', async () => {
    const port = await freePort();
    const others = [1, 2].map((rank) => start(rank, 4, port, 60_000));
    const keeper = start(0, 4, port, 6_000);
    await untilThere(port, [0, 1, 2]);
    const began = Date.now();
    assert.match(
      (await keeper.said).message,
      /^initProcessGroup: rank 3 of 4 did not come within 6000 ms \(this is rank 0\)/,
    );
    for (const { said } of others) {
      const { name, message, details } = await said;
      assert.match(
        message,
        /^initProcessGroup: rank 3 of 4 did not come within 6000 ms \(by rank 0, which has given up\)\. Was it started/,
      );
      assert.deepEqual([name, details['missing']], ['TimeoutError', [3]]);
    }
    assert.ok(Date.now() - began < 20_000);
  });

  it('has the same error on a later rank as on all others', async () => {
    const store = new HashStore();
    const meet = (rank: number, timeoutMs: number): Promise<unknown> =>
      rendezvous(store, { rank, worldSize: 3 }, 'shm', timeoutMs, {
        keeper: rank === 0,
        launcher: null,
      });
    const began = Date.now();
    const errors = await Promise.all([errorOf(meet(0, 60)), errorOf(meet(1, 30_000))]);
    for (const error of errors)
      assert.ok(
        error instanceof TimeoutError &&
          /rank 2 of 3 did not come within 60 ms/.test(error.message),
        error.message,
      );
    assert.ok(
      Date.now() - began < 900,
      'all who are there have read it: rank 0 waits for nobody else',
    );
    assert.match(
      (await errorOf(meet(2, 30_000))).message,
      /rank 2 of 3 did not come within 60 ms \(by rank 0, which has given up\)/,
    );
  });

  it('says that all came if the last of them does not start the world', async () => {
    class Stopped extends HashStore {
      override compareSet(key: string, expected: string, value: string): Promise<Buffer> {
        // The rank stops before it can say that all are there.
        if (value.includes('"members"')) return new Promise(() => {});
        return super.compareSet(key, expected, value);
      }
    }
    const store = new Stopped();
    const meet = (rank: number): Promise<unknown> =>
      rendezvous(store, { rank, worldSize: 2 }, 'shm', 60, { keeper: rank === 0, launcher: null });
    const first = errorOf(meet(0));
    void meet(1);
    assert.match(
      (await first).message,
      /all 2 ranks came, and the last of them did not start the world within 60 ms \(this is rank 0\): it has ended, or it is stopped/,
    );
  });

  it('does not block rank 0 if another rank dies after the rendezvous', async () => {
    class Deaf extends HashStore {
      override whenSet(): Promise<void> {
        return new Promise(() => {}); // one that is killed before it reads the outcome
      }
    }
    const store = new HashStore();
    const deaf = new Deaf();
    deaf.run = (command) => store.run(command);
    const began = Date.now();
    void rendezvous(deaf, { rank: 1, worldSize: 2 }, 'shm', 5_000, {
      keeper: false,
      launcher: null,
    });
    await rendezvous(store, { rank: 0, worldSize: 2 }, 'shm', 5_000, {
      keeper: true,
      launcher: null,
    });
    assert.ok(Date.now() - began < 2_000);
  });

  it('has the error of rank 0 if it left because of a third rank', async () => {
    const keeper = await new TCPStore('127.0.0.1', 0, { isServer: true }).ready();
    const stores = await Promise.all(
      [1, 2].map(() => new TCPStore('127.0.0.1', keeper.port).ready()),
    );
    const failures = [keeper, ...stores].map(
      (store, rank) => new StartFailures(store, { rank, worldSize: 4 }, 10_000),
    );
    const waiting = stores.map((store) => errorOf(store.get('address of rank 3')));
    await failures[0]?.publish(new Error('allReduce: rank 3 has died'));
    await keeper.close();
    for (const [i, closed] of (await Promise.all(waiting)).entries()) {
      assert.ok(closed instanceof StoreError);
      const error = storeFailure(
        closed,
        { rank: i + 1, worldSize: 4 },
        'here',
        10_000,
        environmentStoreText,
        'rank 0',
        failures[i + 1]?.first,
      ) as DistributedError;
      assert.ok(error instanceof DistributedError && error.cause === closed);
      assert.match(
        error.message,
        /^initProcessGroup: rank 0 has ended, or has left, .*this is rank \d of 4\)\. Rank 0 gave up first: allReduce: rank 3 has died$/,
      );
    }
  });
});

describe('a world of an impossible size', function () {
  this.timeout(30_000);

  it('costs nothing proportional to its size before the rendezvous', async () => {
    const worldSize = 999_999_999;
    for (const store of [
      new HashStore(),
      await new TCPStore('127.0.0.1', 0, { isServer: true }).ready(),
    ]) {
      const began = Date.now();
      const options: InitOptions = { store, worldSize, timeoutMs: 300 };
      const error = await errorOf(initProcessGroup('shm', { ...options, rank: 1 }));
      assert.match(
        error.message,
        /rank 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 999999982 more of 999999999 did not come within 300 ms \(this is rank 1\)/,
      );
      const { missing, missingCount } = (error as TimeoutError).details as {
        missing: number[];
        missingCount: number;
      };
      assert.deepEqual([missing.length, missingCount], [16, 999_999_998]);
      assert.ok(Date.now() - began < 3_000);
      await store.close();
    }
    const port = await freePort();
    const { message } = await start(0, worldSize, port, 300).said;
    assert.match(
      message,
      /rank 1, 2, .* more of 999999999 did not come within 300 ms \(this is rank 0\)/,
    );
  });
});
