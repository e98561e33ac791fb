/**
 * Ranks that are processes: collectives over shared memory and gloo, and ranks that fail, die or
 * stall.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { type CollectiveDetails, type LaunchOptions, launch } from '../../../lib/distributed.js';
import { root } from '../../../scripts/check-tree.js';
import { programArguments } from '../../run-program.js';
import { errorOf } from '../support/capture-output.js';
import { isRunning } from '../support/is-running.js';
import { leakedSegments } from '../support/leaked-segments.js';
import { skipWithoutGloo } from '../support/skip-without-gloo.js';

const here = fileURLToPath(import.meta.url);
const program = path.join(path.dirname(here), '..', 'programs', `ranks${path.extname(here)}`);
const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-ranks-'));
let runs = 0;

/** A run of a scenario: by whom it is awaited, and what its ranks say they saw. */
function scenario(
  name: string,
  worldSize: number,
  { args = [], ...options }: LaunchOptions = {},
): { run: () => Promise<void>; seen: <T>(rank: number) => T } {
  const reports = mkdtempSync(path.join(folder, `${runs++}-`));
  return {
    run: () => launch(worldSize, program, { args: [name, reports, ...args], ...options }),
    seen: (rank) => JSON.parse(readFileSync(path.join(reports, `rank-${rank}.json`), 'utf8')),
  };
}

async function until(what: () => boolean, ms = 10_000): Promise<void> {
  for (const end = Date.now() + ms; !what(); await sleep(20))
    assert.ok(Date.now() < end, 'it did not happen in time');
}

after(() => rmSync(folder, { recursive: true }));

for (const backend of ['shm', 'gloo']) {
  describe(`ranks that are processes over ${backend}`, function () {
    this.timeout(60_000);
    talkBy(backend);
  });
}

function talkBy(backend: string): void {
  before(function () {
    if (backend === 'gloo') skipWithoutGloo(this);
  });
  afterEach(() => assert.deepEqual(leakedSegments(), []));

  it('run every collective with uneven and empty shards, and name both call sites of a mismatch', async () => {
    const { run, seen } = scenario('values', 3, { backend });
    await run();
    for (const rank of [0, 1]) {
      const { differentShapes, differentKinds } = seen<{
        differentShapes: string;
        differentKinds: string;
      }>(rank);
      assert.match(
        differentShapes,
        new RegExp(
          `allReduce.*rank ${1 - rank} called allReduce.* ${3 - rank} .*at .*ranks\\.[jt]s:\\d+`,
          's',
        ),
      );
      assert.match(differentShapes, /this rank .*ranks\.[jt]s:\d+/s);
      assert.match(
        differentKinds,
        new RegExp(
          `rank ${1 - rank} called ${rank === 0 ? 'broadcast' : 'allReduce'}.*ranks\\.[jt]s:\\d+.*this rank.*ranks\\.[jt]s:\\d+`,
          's',
        ),
      );
    }
  });

  it('report within the timeout a rank that was killed in a collective', async () => {
    const { run, seen } = scenario('killed', 3, { backend, timeoutMs: 20_000 });
    const error = await errorOf(run);
    assert.match(error.message, /^launch: rank 1 \(process \d+\) was ended by SIGKILL/);
    assert.deepEqual(
      [error.details['rank'], error.details['signal'], error.details['exitCode']],
      [1, 'SIGKILL', null],
    );
    for (const rank of [0, 2]) assert.match(seen<string>(rank), /allReduce.*rank 1 has died/s);
  });

  it('wait for a leader without a limit, and report at once that it was killed', async () => {
    // Over gloo, test/distributed/process-group/long-waits.test.ts waits beyond the timeout.
    const idleMs = backend === 'shm' ? 4_200 : 0;
    const args = [String(idleMs)];
    const { run, seen } = scenario('leader', 3, {
      backend,
      args,
      timeoutMs: idleMs === 0 ? 20_000 : 4_000,
    });
    const error = await errorOf(run);
    assert.match(error.message, /^launch: rank 0 \(process \d+\) was ended by SIGKILL/);
    for (const rank of [1, 2]) {
      const { commands, error } = seen<{ commands: string[]; error: string }>(rank);
      assert.deepEqual(commands, ['go', 'on']);
      assert.match(error, /(recv|broadcastObjectList).*rank 0 has died/s);
    }
  });

  it('name the global rank of a killed process, whatever its group rank', async () => {
    const { run, seen } = scenario('killedInPart', 3, { backend, timeoutMs: 20_000 });
    await errorOf(run);
    const { message, details } = seen<{ message: string; details: CollectiveDetails }>(2);
    assert.match(message, /allReduce \(call 2 of group "group0"\).*rank 1 has died/s);
    assert.deepEqual(details.ranks, [1]);
    assert.deepEqual(details.calls.map((call) => call.rank).sort(), [1, 2]);
  });

  it('report what another rank has thrown, which is the error of the run', async () => {
    const { run, seen } = scenario('throws', 2, { backend });
    const error = await errorOf(run);
    assert.match(
      error.message,
      /^launch: rank 1 \(process \d+\) ended with exit code 1: no data for this rank\n {2}last lines of its stderr:\n(.*\n)*.*TypeError: no data for this rank/,
    );
    assert.match(
      seen<string>(0),
      /allReduce \(call 1 of group "world"\) at .*ranks\.[jt]s:\d+.*: rank 1 aborted the group: no data for this rank/,
    );
  });

  it('report at once a rank that died before it joined their group', async () => {
    const { run, seen } = scenario('gone', 4, { backend, timeoutMs: 20_000 });
    const begin = Date.now();
    const error = await errorOf(run);
    assert.match(error.message, /^launch: rank 1 \(process \d+\) was ended by SIGKILL/);
    const gone =
      backend === 'gloo'
        ? /group "group[01]": rank 1 has ended or cannot be reached/
        : /join: rank 1 has died \(process \d+\) before it joined group "group[01]"/;
    for (const rank of [0, 2]) assert.match(seen<string>(rank), gone);
    assert.ok(Date.now() - begin < 15_000);
  });

  for (const worlds of [0, 1]) {
    it(`report at once a rank that exited before it joined ${worlds === 0 ? 'any world' : 'the second world'}, whether they wait or come later`, async () => {
      const { run, seen } = scenario('ends-before', 3, {
        backend,
        timeoutMs: 30_000,
        args: [String(worlds)],
      });
      const begin = Date.now();
      await errorOf(run);
      assert.ok(Date.now() - begin < 15_000);
      for (const rank of [0, 2])
        assert.match(
          seen<string>(rank),
          /^initProcessGroup: rank 1 has ended, with exit code 0, before it called initProcessGroup/,
        );
    });
  }

  it('name the call that waited for a rank which never joins the group', async () => {
    // in which they have to find each other first
    const { run, seen } = scenario('absent', 2, { backend, timeoutMs: 2_000 });
    await run();
    for (const [i, { message, details }] of seen<{ message: string; details: CollectiveDetails }[]>(
      0,
    ).entries()) {
      assert.match(
        message,
        /^read: allReduce at .*ranks\.[jt]s:\d+:\d+\)?: .*rank 1 has not joined.*timeout after \d+ ms/,
      );
      assert.deepEqual(
        [details.op, details.group, details.sequence, details.ranks],
        ['allReduce', `group${i}`, 1, [1]],
      );
      assert.match(details.calls[0]?.where ?? '', /ranks\.[jt]s:\d+/);
    }
  });

  it('report at once a mismatch of meshes, with both meshes', async () => {
    const { run, seen } = scenario('differentMeshes', 4, { backend, timeoutMs: 20_000 });
    const begin = Date.now();
    await run();
    assert.ok(Date.now() - begin < 15_000, 'they end by themselves');
    for (const rank of [1, 3]) {
      const { ms, message, details, after } = seen<{
        ms: number;
        message: string;
        details: CollectiveDetails;
        after: number;
      }>(rank);
      const [own, other] = [
        /DeviceMesh\(cpu, a: 2, b: 2\) of the ranks \[\[0, 1\], \[2, 3\]\] at .*ranks\.[jt]s:\d+/,
        /DeviceMesh\(cpu, dp: 2, tp: 2\) of the ranks .* at .*ranks\.[jt]s:\d+/,
      ];
      assert.ok(
        own.test(message) &&
          other.test(message) &&
          /initDeviceMesh \(group creation 1 of group "world"\)/.test(message),
        message,
      );
      assert.ok(
        details.calls.filter(({ op, where }) => op === 'initDeviceMesh' && where !== '').length > 0,
      );
      assert.ok(ms < 5_000, `after ${ms} ms`);
      assert.equal(after, 2);
    }
  });

  it('report each of several mismatched meshes', async () => {
    const { run, seen } = scenario('twoDifferentMeshes', 4, { backend, timeoutMs: 20_000 });
    await run();
    for (const rank of [0, 1, 2, 3]) {
      const [first, second] = seen<string[]>(rank);
      assert.match(
        first as string,
        /initDeviceMesh \(group creation 1 .*DeviceMesh\(cpu, [ab]: 2, [ab]: 2\)/s,
      );
      assert.match(
        second as string,
        /initDeviceMesh \(group creation 2 .*DeviceMesh\(cpu, [cd]: 2, [cd]: 2\)/s,
      );
    }
  });

  it('name in the error of a blocking read the call that created the group', async () => {
    const { run, seen } = scenario('blocking', 2, { backend, timeoutMs: 2_000 });
    await run();
    assert.match(
      seen<string>(0),
      /allReduce .*rank 1 has not joined.*this rank created group "group0" of the ranks \[0, 1\] by newGroup \(group creation 1 of group "world"\) at .*ranks/s,
    );
  });

  it('name the progress of ranks that have not joined a group', async () => {
    const { run, seen } = scenario('notJoined', 3, { backend, timeoutMs: 3_000 });
    await run();
    const [made, other] = seen<{ message: string; details: CollectiveDetails }[]>(0) as [
      { message: string; details: CollectiveDetails },
      { message: string },
    ];
    assert.match(
      made.message,
      /this rank created group "group0" .* by newGroup \(group creation 1 of group "world"\) at .*ranks.*; rank 1 created it too, by newGroup \(group creation 1\) at .*ranks/,
    );
    assert.deepEqual(
      made.details.calls.map(({ rank, op }) => [rank, op]),
      [
        [0, 'allReduce'],
        [1, 'newGroup'],
      ],
    );
    assert.match(
      other.message,
      /this rank created group "group1" .* \(group creation 2 of group "world"\) at .*; rank 2 created no group/,
    );
  });

  it('exit with the unobserved failure of a Work', async () => {
    const error = await errorOf(scenario('unheard', 2, { backend }).run);
    assert.match(
      error.message,
      /^launch: rank \d \(process \d+\) ended with exit code 1: .*rank \d called allReduce of/,
    );
  });

  it('report a rank without progress, and can still exit', async () => {
    const { run, seen } = scenario('stalls', 2, { backend, timeoutMs: 2_500 });
    const error = await errorOf(run);
    assert.match(seen<string>(0), /allReduce.*rank 1 has not come.*timeout after \d+ ms/s);
    assert.match(
      error.message,
      /^launch: rank 0 \(process \d+\) ended with exit code 1: .*rank 1 has not come/,
    );
  });
}

describe('ranks that are processes', function () {
  this.timeout(60_000);
  afterEach(() => assert.deepEqual(leakedSegments(), []));

  it('report at once a mismatch of groups, with both lists', async () => {
    const { run, seen } = scenario('differentGroups', 3, { timeoutMs: 20_000 });
    await run();
    assert.match(
      seen<string>(0),
      /: rank 1 has created it of the ranks \[1, 2\] at .*ranks\.[jt]s:\d+.*, and rank 0 of \[0, 1\] at .*ranks/,
    );
    assert.match(
      seen<string>(1),
      /newGroup \(group creation 1 of group "world"\): rank 0 created group "group0" of the ranks \[0, 1\] at .*, this rank of \[1, 2\] at /,
    );
  });

  it('use little of /dev/shm for their groups', async () => {
    const { run, seen } = scenario('memory', 4);
    await run();
    const [world, part] = seen<[number, number]>(0);
    assert.ok(world <= 8.5 && part <= 4.5, `${world} MiB for the world, ${part} for a part of it`);
  });

  for (const what of ['waits', 'loops']) {
    it(`exit if their launcher is killed, also while one ${what === 'waits' ? 'waits for the other' : 'is in an endless loop'}`, () =>
      endWithParent(what));
  }

  async function endWithParent(what: string): Promise<void> {
    const reports = mkdtempSync(path.join(folder, 'parent-'));
    const command = here.endsWith('.ts')
      ? programArguments('../lib/cli/main')
      : [path.join(root, 'dist', 'cli', 'main.js')];
    const parent = spawn(
      process.execPath,
      [...command, 'run', '--nproc-per-node', '2', program, what, reports],
      { stdio: 'ignore' },
    );
    const files = [0, 1].map((rank) => path.join(reports, `rank-${rank}.json`));
    await until(() => files.every((file) => existsSync(file) && readFileSync(file, 'utf8') !== ''));
    const pids = files.map((file) => JSON.parse(readFileSync(file, 'utf8')) as number);
    assert.ok(pids.every(isRunning));
    parent.kill('SIGKILL');
    await until(() => !pids.some(isRunning), 8_000);
    assert.deepEqual(leakedSegments(pids), []);
  }

  it('are checked for leaked memory by a check that detects it', () => {
    const name = `shardwise-0-${spawn('true').pid}-left`;
    writeFileSync(path.join('/dev/shm', name), '');
    try {
      assert.deepEqual(leakedSegments(), [name]);
    } finally {
      rmSync(path.join('/dev/shm', name));
    }
  });
});
