/** GPUs of two hosts, simulated by mount namespaces with separate shared memory and a GPU each. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { cuda } from '../../../lib/index.js';
import { skipBecause, skipWithoutCuda } from '../../skip.js';
import { OWN_MEMORY, type Run, reports, runNodes } from '../support/nodes.js';
import { skipWithoutGloo } from '../support/skip-without-gloo.js';

const OWN_MOUNTS = ['unshare', '-m', ...OWN_MEMORY];

interface Heard {
  readonly message: string;
  readonly ms: number;
}

describe('GPU ranks of two hosts', function () {
  this.timeout(180_000);
  let folder: string;
  let run: Run | null = null;

  before(function () {
    skipWithoutCuda(this);
    skipWithoutGloo(this);
    const [command = '', ...rest] = [...OWN_MOUNTS, 'true'];
    const { status, stderr, error } = spawnSync(command, rest, { encoding: 'utf8' });
    if (status !== 0)
      skipBecause(
        this,
        `no mounts of its own, which takes root: ${error?.message ?? stderr.trim()}`,
      );
  });
  beforeEach(() => {
    folder = mkdtempSync(path.join(tmpdir(), 'shardwise-gpu-hosts-'));
  });
  afterEach(() => {
    run?.stop();
    run = null;
    rmSync(folder, { recursive: true });
  });

  /** The scenario on two hosts that see these GPUs. */
  function start(
    scenario: string,
    gpus: readonly [string, string],
    ranksPerNode: number,
    timeoutMs = 30_000,
  ): Run {
    const nodes = gpus.map((visible, node) => ({
      within: OWN_MOUNTS,
      env: {
        CUDA_VISIBLE_DEVICES: visible,
        NCCL_HOSTID: `host${node}`,
        NCCL_SOCKET_IFNAME: 'lo',
        SHARDWISE_SOCKET_IFNAME: 'lo',
      },
    }));
    run = runNodes(nodes, {
      program: 'two-hosts-gpu',
      args: [scenario, folder],
      ranksPerNode,
      masterAddress: '127.0.0.1',
      timeoutMs,
    });
    return run;
  }

  /** What the ranks of one host each heard; all have ended soon after. */
  async function heard(
    scenario: string,
    ranks: readonly number[],
    timeoutMs?: number,
  ): Promise<Heard[]> {
    const started = start(scenario, ['0', '1'], 1, timeoutMs);
    const all = await reports<Heard>(folder, ranks, started);
    assert.ok(
      (await Promise.race([Promise.all(started.ended), sleep(30_000, null)])) !== null,
      `hangs:\n${started.text()}`,
    );
    return all;
  }

  async function compute(gpus: readonly [string, string], ranksPerNode: number): Promise<void> {
    const { ended, text } = start('computes', gpus, ranksPerNode);
    assert.deepEqual(await Promise.all(ended), [0, 0], text());
    const ranks = Array.from({ length: 2 * ranksPerNode }, (_, rank) => rank);
    const total = (each: readonly number[], value: (rank: number) => number): number =>
      each.reduce((before, rank) => before + value(rank), 0);
    const sum = total(ranks, (rank) => rank + 1);
    const gathered = ranks.toReversed().flatMap((rank) => [rank, rank]);
    for (const [rank, seen] of (
      await reports(folder, ranks, { ended, text, stop: () => {} })
    ).entries()) {
      const [between, within] = [
        (other: number) => other % ranksPerNode === rank % ranksPerNode,
        (other: number) => Math.floor(other / ranksPerNode) === Math.floor(rank / ranksPerNode),
      ];
      const parts = [between, within].map((isIn) =>
        total(ranks.filter(isIn), (other) => 10 ** other),
      );
      assert.deepEqual(seen, { sums: [sum, sum], parts, gathered }, `rank ${rank}`);
    }
  }

  it('compute together on a shared GPU through host memory and gloo', () => compute(['0', '0'], 2));

  describe('with a GPU each', () => {
    before(function () {
      if (cuda.deviceCount() < 2) skipBecause(this, 'one GPU, it takes two');
    });

    it('compute together by NCCL without a named backend', () => compute(['0', '1'], 1));

    it('compute together in pairs between the hosts and within each', async function () {
      if (cuda.deviceCount() < 4) skipBecause(this, 'fewer than 4 GPUs');
      await compute(['0,1', '2,3'], 2);
    });

    it('all report a different shape at once, although NCCL does not detect it on each host', async () => {
      for (const { message, ms } of await heard('shapes', [0, 1])) {
        assert.match(
          message,
          /\(call 2 of group "world"\): rank [01] called allReduce of [45] float32 \(sum\) at .*two-hosts-gpu\.\w+:\d+.* allReduce of [45] float32 \(sum\) at .*two-hosts-gpu\.\w+:\d+/s,
        );
        assert.ok(message.includes('of 4 float32') && message.includes('of 5 float32'), message);
        assert.ok(ms < 10_000, `it took ${ms} ms`);
      }
    });

    it('name global ranks in errors, whatever their group ranks are', async () => {
      const [near, far] = (await heard('turned', [0, 1])) as [Heard, Heard];
      assert.match(near.message, /rank 1 called allReduce of 5 float32/);
      assert.match(
        far.message,
        /rank 0 called allReduce of 4 float32.*\n.*: rank 0 has left the group, its last call was allReduce of 2 float32/s,
      );
    });

    it('report a killed rank while their GPUs wait for it', async () => {
      for (const { message, ms } of await heard('killed', [0])) {
        assert.match(
          message,
          /allReduce \(call 2 of group "world"\) at .*: rank 1 has (died or cannot be reached|left the group)/s,
        );
        assert.ok(ms < 10_000, `it took ${ms} ms`);
      }
    });

    it('name after the timeout the missing rank and its last call', async () => {
      const [near, far] = (await heard('late', [0, 1], 2_000)) as [Heard, Heard];
      assert.match(
        near.message,
        /allReduce \(call 2 of group "world"\) at .*: rank 1 has not come, its last call was allReduce of 2 float32 \(sum\) at .*\(call 1\) \(timeout after 2\d\d\d ms\)/s,
      );
      assert.match(far.message, /has not come|has failed before/);
    });
  });
});
