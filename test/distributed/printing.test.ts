/** Groups, works, stores and meshes in a terminal and as JSON. */
import assert from 'node:assert/strict';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { inspect } from 'node:util';
import {
  allReduce,
  FileStore,
  HashStore,
  initDeviceMesh,
  newGroup,
  PrefixStore,
  TCPStore,
} from '../../lib/distributed.js';
import { ones } from '../../lib/index.js';
import { FakeStore } from '../../lib/testing/index.js';
import { onRanks } from './support/on-ranks.js';

describe('printing', () => {
  it('a process group gives one line with its name and ranks', async () => {
    const lines = await onRanks(3, () => {
      const mesh = initDeviceMesh('cpu', [3], { meshDimNames: ['tp'] });
      return [inspect(mesh.getGroup()), inspect(newGroup([2, 0])), inspect({ mesh })];
    });
    assert.deepEqual(lines[0], [
      'ProcessGroup(world: rank 0 of ranks 0, 1, 2)',
      'ProcessGroup(group0: rank 1 of ranks 2, 0)',
      '{ mesh: DeviceMesh(cpu, tp: 3) }',
    ]);
    assert.equal(lines[1]?.[1], 'ProcessGroup(group0: not a member, of ranks 2, 0)');
  });

  it('a Work gives one line with its state', async () => {
    const lines = await onRanks(2, async () => {
      const work = allReduce(ones([2]), { asyncOp: true });
      const before = String(work);
      await work.wait();
      return [before, inspect(work)];
    });
    assert.deepEqual(lines[0], ['Work(in flight)', 'Work(done)']);
  });

  it('a store gives one line with its kind and address', async () => {
    const hash = new HashStore();
    await hash.set('a', '1');
    const file = new FileStore(path.join(tmpdir(), `shardwise-printed-${process.pid}`), 2);
    await file.add('a', 1);
    assert.deepEqual(
      [
        inspect(hash),
        inspect({ store: new PrefixStore('mine', hash) }),
        inspect(file),
        inspect(new FakeStore()),
      ],
      [
        'HashStore(1 key)',
        "{ store: PrefixStore('mine', HashStore(1 key)) }",
        `FileStore(${file.path}, 2 processes)`,
        'FakeStore(0 keys)',
      ],
    );
    await file.close();
    assert.match(String(file), /, closed\)$/);
    await rm(file.path, { force: true });
  });

  it('a store never shows its secret', async () => {
    const server = new TCPStore('127.0.0.1', 0, {
      isServer: true,
      worldSize: 2,
      waitForWorkers: false,
      secret: 'hunter2',
    });
    await server.set('a', '1');
    const client = new TCPStore('127.0.0.1', server.port, { secret: 'hunter2' });
    assert.equal(String(await client.get('a')), '1');
    assert.deepEqual(
      [inspect(server), `${client}`],
      [
        `TCPStore(127.0.0.1:${server.port}, server, 2 workers)`,
        `TCPStore(127.0.0.1:${server.port}, client)`,
      ],
    );
    for (const depth of [0, 2, 9])
      assert.doesNotMatch(
        inspect(server, { depth, customInspect: false, showHidden: true }),
        /hunter2/,
      );
    assert.doesNotMatch(JSON.stringify({ ...server, server: null, connected: null }), /hunter2/);
    await client.close();
    await server.close();
    assert.match(inspect(server), /, closed\)$/);
  });

  it('a mesh as JSON gives its device type, names and ranks', async () => {
    const [text] = await onRanks(4, () =>
      JSON.stringify(initDeviceMesh('cpu', [2, 2], { meshDimNames: ['dp', 'tp'] })),
    );
    assert.deepEqual(JSON.parse(text as string), {
      deviceType: 'cpu',
      meshDimNames: ['dp', 'tp'],
      mesh: [
        [0, 1],
        [2, 3],
      ],
    });
  });
});
