/** Ranks end with `shardwise run`, whatever ends it, also before they load the library. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { root } from '../../../scripts/check-tree.js';
import { loader } from '../../run-program.js';
import { isRunning } from '../support/is-running.js';

const extension = path.extname(fileURLToPath(import.meta.url));
const main = path.join(root, 'lib', 'cli', `main${extension}`);
const program = fileURLToPath(new URL(`../programs/blocked-rank${extension}`, import.meta.url));
const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-launcher-'));
const RANKS = 2;

after(() => rmSync(folder, { recursive: true }));

/** Resolves to the processes of both ranks, once they are about to block. */
async function started(file: string): Promise<number[]> {
  for (const end = Date.now() + 30_000; ; await sleep(20)) {
    const pids = existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n').map(Number) : [];
    if (pids.length === RANKS) return pids;
    assert.ok(Date.now() < end, 'the ranks did not start');
  }
}

async function ended(pids: readonly number[], ms: number): Promise<boolean> {
  for (const end = Date.now() + ms; Date.now() < end; await sleep(50))
    if (!pids.some(isRunning)) return true;
  return false;
}

/** Whether the ranks end when their launcher gets the signal. */
async function endWithLauncher(kind: string, signal: NodeJS.Signals): Promise<boolean> {
  const file = path.join(folder, `${kind}-${signal}`);
  const args = [...loader, main, 'run', '--nproc-per-node', String(RANKS), program, kind, file];
  const launcher = spawn(process.execPath, args, { stdio: 'ignore' });
  const pids = await started(file);
  launcher.kill(signal);
  const haveEnded = await ended([...pids, launcher.pid as number], 20_000);
  for (const pid of haveEnded ? [] : pids) process.kill(pid, 'SIGKILL');
  return haveEnded;
}

describe('ranks that have not loaded the library', function () {
  this.timeout(60_000);
  for (const [kind, what] of [
    ['loop', 'loop without an end'],
    ['child', 'wait for a child process'],
    ['wait', 'wait in Atomics.wait'],
    ['listeners', 'removed their listeners'],
  ] as const)
    it(`end with a launcher that is killed while they ${what}`, async () => {
      assert.equal(await endWithLauncher(kind, 'SIGKILL'), true);
    });

  for (const signal of ['SIGQUIT', 'SIGHUP', 'SIGTERM'] as const)
    it(`end by ${signal} of their launcher`, async () => {
      assert.equal(await endWithLauncher('wait', signal), true);
    });
});
