/** A save ends in time, and says why, if one of its ranks dies or stands still. */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, promises, readdirSync, rmSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { distributedCheckpoint, launch } from '../../../../lib/distributed.js';
import { full, ones, tensor, zeros } from '../../../../lib/index.js';
import { skipWithoutGloo } from '../../../distributed/support/skip-without-gloo.js';
import { programArguments } from '../../../run-program.js';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'shardwise-missing-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** A rank, what it prints, and how it ended. */
function startRank(rank: number, ...args: string[]) {
  const name = 'parallel/distributed-checkpoint/save/missing-rank-run';
  const program: ChildProcess = spawn(
    process.execPath,
    [...programArguments(name), folder, String(rank), ...args],
    { stdio: ['ignore', 'pipe', 'pipe'] },
  );
  const text = { out: '', err: '' };
  program.stdout?.on('data', (data: Buffer) => (text.out += data));
  program.stderr?.on('data', (data: Buffer) => (text.err += data));
  const ended = new Promise<NodeJS.Signals | null>((resolve) => {
    program.once('close', (_, signal) => resolve(signal));
  });
  return { program, ended, text };
}

interface Seen {
  readonly name: string;
  readonly message: string;
  readonly ranks: number[];
  readonly ms: number;
}

/** What ranks 0 and 1 see if rank 2 gets the signal while it saves. */
async function seenBy(...args: string[]): Promise<Seen[]> {
  const ranks = [0, 1, 2].map((rank) => startRank(rank, ...args));
  const others = ranks.slice(0, 2);
  await Promise.all(others.map(({ ended }) => ended));
  ranks[2]?.program.kill('SIGKILL');
  await ranks[2]?.ended;
  return others.map(({ text }) => {
    assert.notEqual(text.out, '', text.err);
    return JSON.parse(text.out) as Seen;
  });
}

for (const backend of ['shm', 'gloo'])
  describe(`a save between processes over ${backend}`, function () {
    this.timeout(60_000);
    before(function () {
      if (backend === 'gloo') skipWithoutGloo(this);
    });

    for (const form of ['save', 'wait', 'close'])
      it(`ends when a rank dies, and names it (${form})`, async () => {
        for (const { name, message, ranks } of await seenBy(backend, 'SIGKILL', form)) {
          assert.match(name, /^CollectiveError/, message);
          assert.match(
            message,
            /allGatherObject.*rank 2 (has died|has ended or cannot be reached)/,
          );
          assert.deepEqual(ranks, [2]);
        }
        const state = { w: zeros([300, 50]) };
        await distributedCheckpoint.load(path.join(folder, 'run', 'step-1'), state);
        assert.ok(state.w.equal(ones([300, 50])));
      });

    it('ends after timeoutMs when a rank stands still, and names it', async () => {
      for (const { message, ranks, ms } of await seenBy(backend, 'SIGSTOP', 'close')) {
        assert.match(message, /rank 2.*timeout/);
        assert.deepEqual(ranks, [2]);
        assert.ok(ms >= 2900 && ms < 20_000, `${ms} ms`);
      }
    });
  });

describe('a Checkpointer that is closed while a rank stands still', () => {
  it('ends by the signal after timeoutMs, and says what failed', async function () {
    this.timeout(60_000);
    const ranks = [0, 1, 2].map((rank) => startRank(rank, 'shm', 'SIGSTOP', 'close'));
    const [first, second, third] = ranks as [
      (typeof ranks)[0],
      (typeof ranks)[0],
      (typeof ranks)[0],
    ];
    while (!first.text.err.includes('closes')) await sleep(10);
    first.program.kill('SIGTERM');
    assert.equal(await first.ended, 'SIGTERM', first.text.err);
    await second.ended;
    third.program.kill('SIGKILL');
    assert.match(first.text.err, /SIGTERM: the last save failed: .*rank 2/s);
  });
});

describe('a save in the background of local ranks', () => {
  it('ends when a rank fails, and names it', async () => {
    const own = path.join(folder, 'run');
    const seen: unknown[] = [];
    const save = async (value: number): Promise<void> =>
      (await distributedCheckpoint.save(own, { t: full([8], value) }, { async: true })).wait();
    const run = launch(2, async (rank) => {
      await save(1);
      if (rank === 1) throw new Error('out of luck');
      await save(2).catch((error: unknown) => seen.push(error));
    });
    await assert.rejects(run, /out of luck/);
    assert.match(String(seen[0]), /rank 1 failed: out of luck/);
  });

  it('lets a rank block on values while another one writes', async () => {
    const { rename } = promises;
    let go = (): void => {};
    const gone = new Promise<void>((resolve) => {
      go = resolve;
    });
    promises.rename = async (from, to) => {
      if (String(to).includes('rank-1')) await gone;
      return rename(from, to);
    };
    syncBuiltinESMExports();
    try {
      await launch(2, async (rank) => {
        const t = full([8], rank);
        const to = path.join(folder, 'run');
        const saving = await distributedCheckpoint.save(to, { [`t${rank}`]: t }, { async: true });
        await sleep(200); // so that rank 0 waits for rank 1
        assert.equal(t.sum().item(), 8 * rank);
        if (rank === 0) go();
        await saving.wait();
      });
    } finally {
      promises.rename = rename;
      syncBuiltinESMExports();
    }
  });

  it('works in any order of the ranks', async () => {
    for (const seed of [1, 2, 3])
      await launch(
        2,
        async (rank) => {
          const to = path.join(folder, String(seed));
          const saving = await distributedCheckpoint.save(to, { t: ones([8]) }, { async: true });
          for (let i = 0; i < 3 + rank; i++) assert.equal(tensor([i]).item(), i);
          await saving.wait();
        },
        { seed },
      );
  });

  it('leaves no threads when its world ends', async () => {
    const threads = (): number => readdirSync('/proc/self/task').length;
    const runOnce = (): Promise<unknown> =>
      launch(2, async () => {
        const to = path.join(folder, 'run');
        await (await distributedCheckpoint.save(to, { t: ones([8]) }, { async: true })).wait();
      });
    for (let i = 0; i < 3; i++) await runOnce();
    const before = threads();
    for (let i = 0; i < 10; i++) await runOnce();
    assert.ok(threads() <= before + 2, `${before} threads, then ${threads()}`);
  });
});
