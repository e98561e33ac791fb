/** Stores: one contract for all, and the properties of each. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import fc from 'fast-check';
import {
  FileStore,
  HashStore,
  PrefixStore,
  type Store,
  StoreError,
  TCPStore,
  TimeoutError,
} from '../../../lib/distributed.js';
import { ArgumentError } from '../../../lib/index.js';
import { programArguments, runProgram } from '../../run-program.js';

const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-stores-'));
let files = 0;
const open: Store[] = [];

function opened<S extends Store>(store: S): S {
  open.push(store);
  return store;
}

/** Two views of one store, as two ranks have them. */
const kinds: Record<string, () => Promise<[Store, Store]>> = {
  HashStore: async () => {
    const store = new HashStore();
    return [store, store];
  },
  FileStore: async () => {
    const file = path.join(folder, `store-${files++}`);
    return [opened(new FileStore(file)), opened(new FileStore(file))];
  },
  TCPStore: async () => {
    const server = await opened(new TCPStore('127.0.0.1', 0, { isServer: true })).ready();
    return [server, opened(new TCPStore('127.0.0.1', server.port))];
  },
  PrefixStore: async () => {
    const store = new HashStore();
    return [new PrefixStore('a/b', store), new PrefixStore('b', new PrefixStore('a', store))];
  },
};

after(async () => {
  for (const store of open.splice(0).reverse()) await store.close();
  rmSync(folder, { recursive: true });
});

for (const [kind, make] of Object.entries(kinds)) {
  describe(kind, () => {
    let [first, second]: [Store, Store] = [new HashStore(), new HashStore()];
    beforeEach(async () => {
      [first, second] = await make();
    });

    it('shows strings and bytes that another rank has set', async () => {
      await first.set('key', 'värde');
      assert.equal((await second.get('key')).toString(), 'värde');
      await second.set('key', Uint8Array.of(0, 255, 10));
      assert.deepEqual([...(await first.get('key'))], [0, 255, 10]);
      await first.set('', '');
      assert.equal((await second.get('')).length, 0);
    });

    it('waits for a later key, and names keys that never come', async () => {
      const later = second.get('later');
      const both = second.wait(['later', 'too']);
      await sleep(5);
      await first.multiSet(['later', 'too'], ['1', '2']);
      assert.equal((await later).toString(), '1');
      await both;
      await assert.rejects(
        second.wait(['too', 'never'], 20),
        (error: TimeoutError) =>
          error instanceof TimeoutError &&
          /nobody set "[^"]*never" within 20 ms/.test(error.message),
      );
      first.setTimeout(20);
      await assert.rejects(first.get('never'), TimeoutError);
    });

    it('gives every adder a different sum', async () => {
      const sums = await Promise.all(
        Array.from({ length: 40 }, (_, i) => (i % 2 ? first : second).add('count', 1)),
      );
      assert.deepEqual(
        sums.sort((a, b) => a - b),
        Array.from({ length: 40 }, (_, i) => i + 1),
      );
      assert.equal(await first.add('count', -40), 0);
      await first.set('word', 'x');
      await assert.rejects(
        second.add('word', 1),
        (error: StoreError) =>
          error instanceof StoreError && /"[^"]*word" is not an integer: "x"/.test(error.message),
      );
      assert.equal(await second.add('count', 0), 0);
      assert.equal(await first.add('large', Number.MAX_SAFE_INTEGER), Number.MAX_SAFE_INTEGER);
      await assert.rejects(
        second.add('large', 1),
        /add: 9007199254740991 and 1 at "[^"]*large" add up to more than 2\^53 - 1/,
      );
      assert.equal(await first.add('large', -1), Number.MAX_SAFE_INTEGER - 1);
    });

    it('compares and sets as PyTorch does', async () => {
      // no such key, something expected
      assert.equal((await first.compareSet('k', 'a', 'b')).toString(), 'a');
      assert.equal(await first.check(['k']), false);
      assert.equal((await first.compareSet('k', '', 'b')).toString(), 'b');
      assert.equal((await second.compareSet('k', 'x', 'c')).toString(), 'b');
      assert.equal((await second.compareSet('k', 'b', 'c')).toString(), 'c');
    });

    it('appends, deletes, checks and counts', async () => {
      const before = await first.numKeys();
      assert.equal(await first.append('log', 'one'), 3);
      assert.equal(await second.append('log', ' two'), 7);
      assert.deepEqual((await first.multiGet(['log'])).map(String), ['one two']);
      assert.equal(await first.check(['log', 'missing']), false);
      assert.equal(await first.numKeys(), before + 1);
      assert.equal(await second.deleteKey('log'), true);
      assert.equal(await first.deleteKey('log'), false);
      assert.equal(await first.check(['log']), false);
    });

    it('copies values, so that later changes of the bytes do not matter', async () => {
      const bytes = Uint8Array.of(1, 2);
      await first.set('bytes', bytes);
      bytes[0] = 9;
      const read = await second.get('bytes');
      read[1] = 9;
      assert.deepEqual([...(await first.get('bytes'))], [1, 2]);
    });

    it('refuses invalid keys, values and numbers', async () => {
      for (const call of [
        () => first.set(1 as never, 'x'),
        () => first.set('k', 2 as never),
        () => first.add('k', 0.5),
        () => first.wait('k' as never),
        () => first.multiSet(['a'], []),
      ]) {
        await assert.rejects(call, ArgumentError);
      }
    });

    it('answers any sequence of commands like one table', async () => {
      const key = fc.constantFrom('a', 'b', 'c');
      const value = fc.uint8Array({ maxLength: 5 });
      const command = fc.oneof(
        fc.tuple(fc.constant('set' as const), key, value),
        fc.tuple(fc.constant('append' as const), key, value),
        fc.tuple(fc.constant('compareSet' as const), key, value),
        fc.tuple(fc.constant('deleteKey' as const), key, value),
      );
      await fc.assert(
        fc.asyncProperty(
          fc.array(fc.tuple(fc.boolean(), command), { maxLength: 12 }),
          async (commands) => {
            const model = new HashStore();
            for (const k of ['a', 'b', 'c']) await first.deleteKey(k);
            for (const [who, [op, k, v]] of commands) {
              const run = (store: Store): Promise<unknown> =>
                op === 'compareSet'
                  ? store.compareSet(k, '', v)
                  : op === 'deleteKey'
                    ? store.deleteKey(k)
                    : store[op](k, v);
              assert.deepEqual(await run(who ? first : second), await run(model));
            }
          },
        ),
        { numRuns: 20 },
      );
    });
  });
}

describe('PrefixStore', () => {
  it('keeps the keys of groups apart', async () => {
    const store = new HashStore();
    const [a, b] = [new PrefixStore('a', store), new PrefixStore('b', store)];
    await a.set('k', '1');
    assert.equal(await b.check(['k']), false);
    assert.equal((await store.get('a/k')).toString(), '1');
    assert.throws(() => new PrefixStore('a', {} as never), ArgumentError);
  });
});

describe('FileStore', () => {
  it('is removed by the last process that closes it', async () => {
    const file = path.join(folder, 'removed');
    const [a, b] = [new FileStore(file, 2), new FileStore(file, 2)];
    await a.set('k', 'v');
    await a.close();
    assert.equal((await b.get('k')).toString(), 'v');
    await assert.rejects(a.set('k', 'w'), /was closed/);
    await b.close();
    assert.equal(existsSync(file), false);
  });

  it('reports where it is damaged, and files that cannot be opened', async function () {
    this.timeout(10_000);
    const file = path.join(folder, 'damaged');
    writeFileSync(file, 'this is no store at all, by its length');
    await assert.rejects(
      opened(new FileStore(file)).get('k'),
      (error: StoreError) => error instanceof StoreError && /damaged at byte 0/.test(error.message),
    );
    await assert.rejects(
      new FileStore(path.join(folder, 'no', 'such', 'folder')).set('k', 'v'),
      /cannot open/,
    );
    assert.throws(() => new FileStore(''), ArgumentError);
  });

  it('is closed without a warning if the program drops it', async () => {
    const args = [
      '--expose-gc',
      ...programArguments('distributed/programs/dropped-store'),
      path.join(folder, 'dropped'),
    ];
    const { stdout, stderr } = await promisify(execFile)(process.execPath, args, {
      timeout: 60_000,
    });
    assert.deepEqual([JSON.parse(stdout), stderr], [[0, []], '']);
  });

  it('counts right among processes', async () => {
    const file = path.join(folder, 'processes');
    const sums = await Promise.all(
      [0, 1, 2].map(() => runProgram<number[]>('distributed/programs/store-counter', 'file', file)),
    );
    assert.deepEqual(
      sums.flat().sort((x, y) => x - y),
      Array.from({ length: 60 }, (_, i) => i + 1),
    );
  });
});

describe('TCPStore', () => {
  it('counts right among processes', async () => {
    const server = await opened(new TCPStore('127.0.0.1', 0, { isServer: true })).ready();
    const sums = await Promise.all(
      [0, 1, 2].map(() =>
        runProgram<number[]>('distributed/programs/store-counter', 'tcp', String(server.port)),
      ),
    );
    assert.equal(new Set(sums.flat()).size, 60);
    assert.equal(await server.add('count', 0), 60);
  });

  it('does not keep a process alive for a background wait', async () => {
    const begin = Date.now();
    assert.deepEqual(await runProgram('distributed/programs/background-store'), ['v', false]);
    assert.ok(Date.now() - begin < 30_000);
  });

  it('is ready when all workers have connected, and reports how many came in time', async () => {
    const server = opened(
      new TCPStore('127.0.0.1', 0, { isServer: true, worldSize: 2, timeoutMs: 5_000 }),
    );
    while (server.port === 0) await sleep(1);
    const worker = opened(new TCPStore('127.0.0.1', server.port, { worldSize: 2 }));
    await Promise.all([server.ready(), worker.ready()]);
    const alone = opened(
      new TCPStore('127.0.0.1', 0, { isServer: true, worldSize: 3, timeoutMs: 50 }),
    );
    await assert.rejects(alone.ready(), /1 of 3 processes had connected/);
  });

  it('retries until the server listens, and reports a timeout', async () => {
    const taken = createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => taken.once('listening', resolve));
    const { port } = taken.address() as { port: number };
    await new Promise((resolve) => taken.close(resolve));
    const early = opened(new TCPStore('127.0.0.1', port));
    const got = early.get('k');
    await sleep(30);
    const server = opened(new TCPStore('127.0.0.1', port, { isServer: true }));
    await server.set('k', 'v');
    assert.equal((await got).toString(), 'v');
    await server.close();
    await assert.rejects(
      new TCPStore('127.0.0.1', port, { timeoutMs: 60 }).set('k', 'v'),
      (error: TimeoutError) => error instanceof TimeoutError && /no server at/.test(error.message),
    );
  });

  it('fails pending and later calls when the server closes', async () => {
    const server = await opened(new TCPStore('127.0.0.1', 0, { isServer: true })).ready();
    const worker = await opened(new TCPStore('127.0.0.1', server.port)).ready();
    const waiting = worker.get('never');
    await sleep(5);
    await server.close();
    await assert.rejects(waiting, /connection to 127.0.0.1:\d+ was closed/);
    await assert.rejects(worker.set('k', 'v'), StoreError);
    await assert.rejects(server.set('k', 'v'), /was closed/);
  });

  it('refuses clients without the secret', async () => {
    const server = await opened(
      new TCPStore('127.0.0.1', 0, { isServer: true, secret: 'right' }),
    ).ready();
    await assert.rejects(
      opened(new TCPStore('127.0.0.1', server.port, { secret: 'wrong' })).set('k', 'v'),
      /has a different secret/,
    );
    await opened(new TCPStore('127.0.0.1', server.port, { secret: 'right' })).set('k', 'v');
    assert.throws(
      () => new TCPStore('10.0.0.1', 29500, { isServer: true, secret: '' }),
      /other machines can reach 10.0.0.1/,
    );
  });

  it('survives unauthenticated connections', async () => {
    const server = await opened(new TCPStore('127.0.0.1', 0, { isServer: true })).ready();
    for (const noise of [
      Buffer.from('GET / HTTP/1.1\r\n\r\n'),
      Buffer.alloc(64, 255),
      Buffer.alloc(8),
    ]) {
      const socket = connect(server.port, '127.0.0.1');
      socket.on('error', () => {});
      socket.write(noise);
      await new Promise((resolve) => {
        socket.once('close', resolve);
        socket.resume();
      });
    }
    await server.set('k', 'v');
    assert.equal((await server.get('k')).toString(), 'v');
  });

  it('reports a server that is not a store', async () => {
    const other = createServer((socket) => socket.end('SSH-2.0-OpenSSH_9.2\r\n')).listen(
      0,
      '127.0.0.1',
    );
    await new Promise((resolve) => other.once('listening', resolve));
    const { port } = other.address() as { port: number };
    await assert.rejects(
      opened(new TCPStore('127.0.0.1', port, { timeoutMs: 500 })).set('k', 'v'),
      /StoreError|not a store of this library|longer than|no server at/,
    );
    await new Promise((resolve) => other.close(resolve));
  });

  it('refuses invalid ports and options', () => {
    assert.throws(() => new TCPStore('127.0.0.1', 0), /expected port/);
    assert.throws(() => new TCPStore('127.0.0.1', 70000), /expected port/);
    assert.throws(() => new TCPStore('', 1), ArgumentError);
    assert.throws(
      () => new TCPStore('127.0.0.1', 1, { isMaster: true } as never),
      /no option "isMaster"/,
    );
  });
});
