/** Ranks connected by gloo: addresses, errors of connecting, and a missing engine. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { type NetworkInterfaceInfo, tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { GlooWorld } from '../../../lib/distributed/engines/gloo-engine.js';
import { ownAddress } from '../../../lib/distributed/engines/network-address.js';
import {
  allReduce,
  barrier,
  type CollectiveError,
  DistributedError,
  HashStore,
  launch,
  newGroup,
} from '../../../lib/distributed.js';
import { ones } from '../../../lib/index.js';
import { programOutput, runProgram } from '../../run-program.js';
import { errorOf, onRanks } from '../support/on-ranks.js';
import { skipWithoutGloo } from '../support/skip-without-gloo.js';

const address = (text: string, internal = false): NetworkInterfaceInfo =>
  ({
    address: text,
    family: text.includes(':') ? 'IPv6' : 'IPv4',
    internal,
    netmask: '',
    mac: '',
    cidr: null,
  }) as NetworkInterfaceInfo;
const interfaces = {
  lo: [address('127.0.0.1', true)],
  eth0: [address('fe80::1'), address('10.1.0.7')],
  ib0: [address('fd00::7'), address('10.2.0.7')],
  empty: [],
};

describe('the address of this machine', () => {
  const found = (host: string | null, oneMachine: boolean, env: Record<string, string> = {}) =>
    ownAddress('initProcessGroup', host, oneMachine, interfaces, env);

  it('is that of the interface which the environment names', async () => {
    assert.equal(
      await found('127.0.0.1', false, {
        SHARDWISE_SOCKET_IFNAME: 'ib0',
        GLOO_SOCKET_IFNAME: 'eth0',
      }),
      '10.2.0.7',
    );
    assert.equal(await found(null, true, { GLOO_SOCKET_IFNAME: 'empty, eth0' }), '10.1.0.7');
    await assert.rejects(
      found(null, false, { GLOO_SOCKET_IFNAME: 'eth7' }),
      /GLOO_SOCKET_IFNAME names the network interface 'eth7', .* This machine has lo, eth0, ib0, empty/,
    );
  });

  it('is loopback only if all ranks are on one machine or there is no other interface', async () => {
    assert.equal(await found('127.0.0.1', true), '127.0.0.1');
    assert.equal(await found('localhost', false), '10.1.0.7');
    assert.equal(await found(null, false), '10.1.0.7');
    assert.equal(await found('no such host.invalid', false), '10.1.0.7');
  });
});

describe('ranks connected by gloo', function () {
  this.timeout(60_000);
  before(function () {
    skipWithoutGloo(this);
  });

  it('leave no keys in the store', async () => {
    const store = new HashStore();
    const open = (rank: number) =>
      GlooWorld.open({
        op: 'initProcessGroup',
        store,
        rank,
        worldSize: 1,
        address: '127.0.0.1',
        timeoutMs: 5_000,
      });
    (await open(0)).leave();
    assert.equal(await store.numKeys(), 0);
  });

  it('get an error naming a rank that cannot connect or does not come', async () => {
    const store = new HashStore();
    const open = (rank: number, host: string) =>
      GlooWorld.open({
        op: 'initProcessGroup',
        store,
        rank,
        worldSize: 2,
        address: host,
        timeoutMs: 300,
      });
    const [first, second] = await Promise.allSettled([
      open(0, '127.0.0.1'),
      open(1, '203.0.113.9'),
    ]);
    assert.match(String((second as PromiseRejectedResult).reason.message), /203\.0\.113\.9/);
    const { reason } = first as PromiseRejectedResult;
    assert.ok(
      reason instanceof DistributedError &&
        /^initProcessGroup: rank 1 cannot connect to the others: .*203\.0\.113\.9/.test(
          reason.message,
        ),
      reason.message,
    );
    const alone = GlooWorld.open({
      op: 'initProcessGroup',
      store: new HashStore(),
      rank: 0,
      worldSize: 2,
      address: '127.0.0.1',
      timeoutMs: 100,
    });
    await assert.rejects(
      alone,
      /initProcessGroup: rank 1 did not publish its address within 100 ms/,
    );
  });

  it('create groups in any order, and get an error naming a rank that never joins', async () => {
    const messages = await launch(
      3,
      async (rank) => {
        const group = newGroup([0, 2]);
        if (rank !== 0) return '';
        const x = ones([1]);
        allReduce(x, { group });
        return x.read().then(
          () => 'no error',
          (error: Error) => error.message,
        );
      },
      { backend: 'gloo', timeoutMs: 2_000 },
    );
    assert.match(messages[0] as string, /rank 2 has left the group, it has called nothing yet/);
  });

  it('name after a timeout the rank that the missing rank itself waits for', async () => {
    const timeoutMs = 800;
    const errors = await onRanks(
      3,
      async (rank) => {
        const [near, far] = [newGroup([0, 1]), newGroup([1, 2])];
        await barrier();
        if (rank === 2) return void (await sleep(3 * timeoutMs));
        const x = ones([2]);
        if (rank === 1) allReduce(x, { group: far });
        allReduce(x, { group: near });
        return (await errorOf(x.read())) as CollectiveError;
      },
      { timeoutMs, hostBackend: 'gloo' },
    );
    assert.deepEqual(
      [errors[0]?.details.ranks, errors[1]?.details.ranks],
      [[2], [2]],
      errors[0]?.message,
    );
  });

  it('deliver large values whole and many small messages in order', async () => {
    const { results } = await runProgram<{ results: unknown }>(
      'distributed/programs/over-gloo',
      'large',
    );
    assert.deepEqual(results, [true, true, true]);
  });

  for (const stranger of ['reset', 'close', 'hold', 'crowd', 'guess']) {
    it(`connect despite an unknown client at their port: ${stranger}`, async () => {
      const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-strangers-'));
      try {
        const outcomes = await Promise.all(
          [stranger, 'second'].map((role) =>
            programOutput('distributed/programs/gloo-unknown-peers', role, folder),
          ),
        );
        assert.deepEqual(outcomes, ['connected\n', 'connected\n']);
      } finally {
        rmSync(folder, { recursive: true, force: true });
      }
    });
  }

  it('get an error saying what to install if the engine is missing', async () => {
    const { message } = await runProgram<{ message: string }>(
      'distributed/programs/over-gloo',
      'missing',
    );
    assert.match(
      message,
      /^launch: the gloo engine cannot be used\. .*install libgloo0 \(to build here: libgloo-dev\)\.\n {2}tried \/nowhere\/gloo-engine\.so: .*cannot open shared object file/,
    );
  });
});
