/** Two hosts, simulated by network namespaces with a virtual cable and separate shared memory. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { skipBecause } from '../../skip.js';
import { OWN_MEMORY, type Run, reports, runNodes } from '../support/nodes.js';
import { skipWithoutGloo } from '../support/skip-without-gloo.js';

const hosts = [0, 1].map((n) => ({
  name: `shardwise-${process.pid}-${n}`,
  link: `sw${process.pid % 100_000}n${n}`,
  address: `10.213.77.${n + 1}`,
}));
const [near, far] = hosts as [(typeof hosts)[0], (typeof hosts)[0]];
const ranks = [0, 1, 2, 3];

const ip = (...args: string[]): string =>
  execFileSync('ip', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });

function connectHosts(): void {
  for (const { name } of hosts) ip('netns', 'add', name);
  ip(
    'link',
    'add',
    near.link,
    'netns',
    near.name,
    'type',
    'veth',
    'peer',
    'name',
    far.link,
    'netns',
    far.name,
  );
  for (const { name, link, address } of hosts) {
    ip('-n', name, 'address', 'add', `${address}/24`, 'dev', link);
    for (const device of ['lo', link]) ip('-n', name, 'link', 'set', device, 'up');
  }
}

function removeHosts(): void {
  for (const { name } of hosts) {
    try {
      ip('netns', 'delete', name);
    } catch {
      // not made
    }
  }
}

/** The scenario on both hosts, two ranks each. */
function runOnBoth(scenario: string, folder: string, timeoutMs: number): Run {
  const nodes = hosts.map(({ name }) => ({ within: ['ip', 'netns', 'exec', name, ...OWN_MEMORY] }));
  return runNodes(nodes, {
    program: 'two-hosts',
    args: [scenario, folder],
    ranksPerNode: 2,
    masterAddress: near.address,
    timeoutMs,
  });
}

describe('ranks of two hosts', function () {
  this.timeout(120_000);
  let folder: string;
  let run: Run | null = null;

  before(function () {
    skipWithoutGloo(this);
    try {
      connectHosts();
    } catch (error) {
      removeHosts();
      if (process.env['CI']) throw error;
      skipBecause(
        this,
        `no network namespaces: ${(error as Error).message.trim().split('\n').at(-1)}`,
      );
    }
  });
  beforeEach(() => {
    folder = mkdtempSync(path.join(tmpdir(), 'shardwise-hosts-'));
  });
  afterEach(() => {
    run?.stop();
    rmSync(folder, { recursive: true });
  });
  after(removeHosts);

  it('compute together by gloo between hosts and by shared memory within each, without a named backend', async () => {
    run = runOnBoth('computes', folder, 30_000);
    assert.deepEqual(await Promise.all(run.ended), [0, 0], run.text());
    const seen = await reports<{ sums: unknown }>(folder, ranks, run);
    const shared = { size: 4, most: [6, 6] };
    assert.deepEqual(seen, [
      { ...shared, sums: [3, null, null] },
      { ...shared, sums: [3, null, 5] },
      { ...shared, sums: [null, 7, 5] },
      { ...shared, sums: [null, 7, null] },
    ]);
  });

  it('all fail within the timeout if the network fails, and nothing hangs', async () => {
    const timeoutMs = 3_000;
    run = runOnBoth('goesOn', folder, timeoutMs);
    await reports(folder, ranks, run, (seen) => seen === 'ready');
    ip('-n', far.name, 'link', 'set', far.link, 'down');
    const cut = Date.now();
    const seen = await reports<{ error: string; at: number }>(
      folder,
      ranks,
      run,
      (each) => typeof each === 'object',
    );
    for (const [rank, { error, at }] of seen.entries()) {
      assert.match(
        error,
        /allReduce \(call \d+ of group "world"\) at .*two-hosts\.ts:\d+.*: (rank [0-3] has|ranks [0-3](, [0-3])*( and| to) [0-3] have) not come/s,
        `rank ${rank}: ${error}`,
      );
      assert.ok(at - cut < timeoutMs + 2_000, `rank ${rank}: after ${at - cut} ms`);
    }
    const codes = await Promise.race([Promise.all(run.ended), sleep(20_000, 'hangs')]);
    assert.deepEqual(codes, [3, 3], run.text());
  });
});
