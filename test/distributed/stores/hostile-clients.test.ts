/**
 * Stores with hostile clients, connections, files and values, which could crash or starve the
 * server. Only on 127.0.0.1.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import {
  ftruncateSync,
  mkdtempSync,
  openSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { KeyValueTable } from '../../../lib/distributed/stores/key-value-table.js';
import {
  encodeRequest,
  LONGEST_MESSAGE,
  LONGEST_VALUE,
} from '../../../lib/distributed/stores/protocol.js';
import {
  FileStore,
  HashStore,
  initProcessGroup,
  launch,
  type Store,
  StoreError,
  TCPStore,
} from '../../../lib/distributed.js';
import { ArgumentError } from '../../../lib/index.js';
import { programArguments } from '../../run-program.js';
import { closed, connectRaw, frame, nextBody, prove } from '../support/raw-store-client.js';

const SECRET = 'of this test';
const MIB = 1 << 20;
const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-hostile-'));
const open: Store[] = [];

function opened<S extends Store>(store: S): S {
  open.push(store);
  return store;
}

const server = (): Promise<TCPStore> =>
  opened(new TCPStore('127.0.0.1', 0, { isServer: true, secret: SECRET })).ready();
const client = (port: number): Promise<TCPStore> =>
  opened(new TCPStore('127.0.0.1', port, { secret: SECRET, timeoutMs: 10_000 })).ready();

afterEach(async () => {
  for (const store of open.splice(0).reverse()) await store.close();
});
after(() => rmSync(folder, { recursive: true }));

describe('a TCPStore with misbehaving clients', function () {
  this.timeout(60_000);

  it('refuses to append beyond the longest value, and continues', async () => {
    const keeper = await server();
    const worker = await client(keeper.port);
    const part = Buffer.alloc(30 * MIB, 'x');
    await worker.append('log', part);
    assert.equal(await worker.append('log', part), 60 * MIB);
    await assert.rejects(
      worker.append('log', part),
      (error: StoreError) =>
        error instanceof StoreError &&
        /"log" would have 94371840 bytes, at most 67108863/.test(error.message),
    );
    assert.equal((await worker.get('log')).length, 60 * MIB);
    await worker.append('log', Buffer.alloc(LONGEST_VALUE - 60 * MIB));
    assert.equal((await worker.get('log')).length, LONGEST_VALUE);
  });

  it('refuses a value that is too long to send, without blocking call or process', async () => {
    const keeper = await server();
    for (const value of [Buffer.alloc(LONGEST_MESSAGE), Buffer.alloc(LONGEST_MESSAGE - 4)])
      await assert.rejects(keeper.set('k', value), StoreError);
    const file = opened(new FileStore(path.join(folder, 'long')));
    await assert.rejects(file.set('k', Buffer.alloc(LONGEST_MESSAGE)), StoreError);
    await file.set('k', 'short');
    assert.equal(String(await file.get('k')), 'short');
  });

  it('shortens an error that quotes very long keys', async () => {
    const keeper = await server();
    const { socket, reader } = await prove(keeper.port, SECRET);
    const key = '\u0000'.repeat(10 * MIB);
    socket.write(frame(7, encodeRequest({ op: 'set', key, value: Buffer.from('word') })));
    assert.ok(await nextBody(socket, reader));
    socket.write(frame(8, encodeRequest({ op: 'add', key, amount: 1 })));
    const answer = (await nextBody(socket, reader)) as Buffer;
    assert.ok(
      answer.length < 10_000 && /^E.*is not an integer/.test(String(answer)),
      String(answer.subarray(0, 100)),
    );
    socket.write(
      frame(9, encodeRequest({ op: 'wait', keys: [key.replace('\0', 'x')], timeoutMs: 20 })),
    );
    assert.match(String((await nextBody(socket, reader))?.subarray(0, 60)), /^T.*nobody set/);
    socket.destroy();
  });

  it('refuses requests with too many keys, and timeouts out of range', async () => {
    const keeper = await server();
    const { socket, reader } = await prove(keeper.port, SECRET);
    // 15 million empty keys
    socket.write(frame(1, Buffer.concat([Buffer.of(6), Buffer.alloc(60 * MIB)])));
    assert.match(String(await nextBody(socket, reader)), /^E.*more than 131072 fields/);
    for (const timeoutMs of [2 ** 40, -1]) {
      socket.write(frame(2, encodeRequest({ op: 'wait', keys: ['k'], timeoutMs })));
      assert.match(String(await nextBody(socket, reader)), /^E.*a timeout is/);
    }
    socket.destroy();
    await keeper.set('k', 'v');
  });

  it('limits the bytes of keys, values and waits, and frees them when they are deleted', () => {
    const table = new KeyValueTable({ mostBytes: 2_000, longestValue: 1_500 });
    const set = (key: string, bytes: number): unknown =>
      table.apply({ op: 'set', key, value: Buffer.alloc(bytes) });
    set('a', 1_000);
    assert.throws(() => set('b', 1_000), /would take \d+ bytes, at most 2000 are kept/);
    set('a', 0);
    set('b', 1_000);
    assert.throws(() => set('c', 1_501), /would have 1501 bytes, at most 1500/);
    assert.throws(
      () =>
        table.apply({
          op: 'compareSet',
          key: 'a',
          expected: Buffer.alloc(0),
          desired: Buffer.alloc(900),
        }),
      StoreError,
    );
    table.apply({ op: 'delete', key: 'b' });
    const drop = table.waitFor(['x', 'y'], 10_000, false, () => assert.fail('dropped'));
    assert.throws(() => set('b', 1_000), StoreError);
    drop?.();
    set('b', 1_000);
    assert.equal(table.waits, 0);
  });

  it('pauses a client that does not read its replies, and serves the others', async () => {
    const keeper = await server();
    await keeper.set('large', Buffer.alloc(32 * MIB));
    const before = process.memoryUsage().rss;
    const { socket } = await prove(keeper.port, SECRET);
    socket.pause();
    for (let id = 0; id < 16; id++)
      socket.write(frame(id, encodeRequest({ op: 'get', key: 'large' })));
    socket.write(frame(1000, encodeRequest({ op: 'set', key: 'behind', value: Buffer.from('v') })));
    const worker = await client(keeper.port);
    for (let i = 0; i < 20; i++) await worker.add('count', 1);
    await sleep(300);
    assert.equal(await worker.check(['behind']), false);
    assert.ok(
      process.memoryUsage().rss - before < 300 * MIB,
      'replies of 512 MiB are not made at once',
    );
    socket.resume(); // one that reads late loses nothing
    await worker.wait(['behind'], 30_000);
    socket.destroy();
  });

  it('drops the waits of a client that has disconnected', async () => {
    const keeper = await server();
    const { table } = (keeper as unknown as { server: { table: KeyValueTable } }).server;
    const before = table.waits;
    const { socket } = await prove(keeper.port, SECRET);
    for (let id = 0; id < 1_000; id++)
      socket.write(
        frame(id, encodeRequest({ op: 'wait', keys: [`never ${id}`], timeoutMs: 600_000 })),
      );
    while (table.waits < before + 1_000) await sleep(5);
    socket.resetAndDestroy();
    for (const end = Date.now() + 5_000; table.waits > before; await sleep(5))
      assert.ok(Date.now() < end, `${table.waits} waits are left`);
  });

  it('treats keys such as __proto__ like any other', async () => {
    const keeper = await server();
    for (const key of ['__proto__', 'constructor', 'toString']) {
      assert.equal(await keeper.check([key]), false);
      await keeper.set(key, '{"polluted":true}');
      assert.equal(String(await keeper.get(key)), '{"polluted":true}');
    }
    assert.equal(({} as { polluted?: boolean }).polluted, undefined);
  });
});

describe('a TCPStore with unauthenticated connections', function () {
  this.timeout(60_000);

  it('reads at most 64 bytes before authentication', async () => {
    const keeper = await server();
    for (const noise of [
      frame(0, Buffer.alloc(100), 40 * MIB),
      Buffer.alloc(65),
      frame(0, Buffer.alloc(10), 49),
    ]) {
      const socket = connectRaw(keeper.port);
      const began = Date.now();
      socket.resume();
      socket.write(noise);
      await closed(socket);
      assert.ok(Date.now() - began < 4_000, 'at once, not when its time is over');
    }
  });

  it('closes a connection after one wrong proof, even if the other side keeps it open', async () => {
    const keeper = await server();
    const { socket, answer } = await prove(keeper.port, 'guessed');
    assert.equal(answer?.length, 0);
    socket.on('data', () => assert.fail('nothing is answered any more'));
    await closed(socket);
    const { unauthenticated } = (keeper as unknown as { server: { unauthenticated: Set<unknown> } })
      .server;
    const halfOpen = await Promise.all(
      Array.from({ length: 50 }, async () => {
        const { socket } = await prove(keeper.port, 'guessed');
        socket.allowHalfOpen = true;
        return socket;
      }),
    );
    for (const end = Date.now() + 2_000; unauthenticated.size > 0; await sleep(5))
      assert.ok(Date.now() < end, `${unauthenticated.size} connections are still open`);
    for (const socket of halfOpen) socket.destroy();
  });

  it('admits a rank while 600 unauthenticated connections exceed its descriptors', async () => {
    const program = spawn(
      '/bin/sh',
      [
        '-c',
        'ulimit -n 128; exec "$0" "$@"',
        process.execPath,
        ...programArguments('distributed/programs/store-server'),
        SECRET,
      ],
      {
        stdio: ['pipe', 'pipe', 'inherit'],
      },
    );
    const ended = new Promise<number | null>((resolve) => program.once('exit', resolve));
    const port = Number(await new Promise((resolve) => program.stdout.once('data', resolve)));
    const strangers = Array.from({ length: 600 }, (_, i) => {
      const socket = connectRaw(port);
      socket.allowHalfOpen = true;
      if (i % 3 === 1) socket.write(frame(0, Buffer.alloc(48))); // a proof, and a wrong one
      if (i % 3 === 2) socket.write(Buffer.alloc(20)); // the beginning of one
      return socket;
    });
    await sleep(500);
    const began = Date.now();
    const ranks = await Promise.all(Array.from({ length: 40 }, () => client(port)));
    assert.ok(Date.now() - began < 4_500, 'before the time of the strangers is over');
    assert.deepEqual(
      new Set(await Promise.all(ranks.map((rank) => rank.add('count', 1)))).size,
      40,
    );
    for (const socket of strangers) socket.destroy();
    program.stdin.end();
    assert.equal(await ended, 0);
  });

  it('retries a connection that closes without an answer, instead of reporting a wrong secret', async () => {
    const keeper = await server();
    const { unauthenticated } = (
      keeper as unknown as { server: { unauthenticated: Set<{ destroy(): void }> } }
    ).server;
    const sendAway = setInterval(() => {
      for (const socket of unauthenticated) socket.destroy();
    }, 1);
    const worker = opened(
      new TCPStore('127.0.0.1', keeper.port, { secret: SECRET, timeoutMs: 10_000 }),
    );
    await sleep(100);
    clearInterval(sendAway);
    await worker.ready();
  });
});

describe('an invalid timeout of a store', () => {
  it('is refused by every function that takes a timeout', async () => {
    const store = new HashStore();
    for (const timeoutMs of [
      2_000_000_001,
      2 ** 31,
      3e9,
      Number.NaN,
      -1,
      Number.POSITIVE_INFINITY,
      '5' as never,
    ]) {
      await assert.rejects(store.wait(['k'], timeoutMs), ArgumentError);
      assert.throws(() => store.setTimeout(timeoutMs), ArgumentError);
      assert.throws(() => new TCPStore('127.0.0.1', 1, { timeoutMs }), ArgumentError);
      assert.throws(
        () => new FileStore(path.join(folder, 'never'), null, { timeoutMs }),
        ArgumentError,
      );
      await assert.rejects(initProcessGroup({ timeoutMs }), ArgumentError);
      await assert.rejects(
        launch(1, () => 0, { timeoutMs }),
        ArgumentError,
      );
    }
    store.setTimeout(2_000_000_000);
    await assert.rejects(store.wait(['k'], 0), /nobody set "k" within 0 ms/);
  });
});

describe('a FileStore with a hostile file', function () {
  this.timeout(10_000);

  it('creates its file for its user alone', async () => {
    const file = path.join(folder, 'mode');
    await opened(new FileStore(file)).set('k', 'v');
    assert.equal(statSync(file).mode & 0o777, 0o600);
  });

  it('refuses a link, a pipe, a device or a folder', async () => {
    const [link, pipe] = [path.join(folder, 'link'), path.join(folder, 'pipe')];
    writeFileSync(path.join(folder, 'victim'), '');
    symlinkSync(path.join(folder, 'victim'), link);
    await new Promise((resolve) => spawn('mkfifo', [pipe]).once('exit', resolve));
    const cases: [string, RegExp][] = [
      [link, /cannot open .*symbolic link/],
      [pipe, /cannot open .*not a regular file/],
      ['/dev/null', /cannot open .*not a regular file/],
      [folder, /cannot open/],
    ];
    for (const [file, expected] of cases)
      await assert.rejects(
        new FileStore(file).set('k', 'v'),
        (error: StoreError) => error instanceof StoreError && expected.test(error.message),
      );
    assert.equal(statSync(path.join(folder, 'victim')).size, 0);
  });

  it('reports an impossible record length at once as damage', async () => {
    const file = path.join(folder, 'sparse');
    const descriptor = openSync(file, 'w');
    writeSync(descriptor, Buffer.alloc(16, 255));
    ftruncateSync(descriptor, 16 + 2 ** 32);
    await assert.rejects(
      new FileStore(file).get('k'),
      (error: StoreError) => error instanceof StoreError && /damaged at byte 0/.test(error.message),
    );
  });
});
