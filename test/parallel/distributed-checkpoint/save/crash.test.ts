/** A writer that is killed at any moment leaves the last checkpoint, complete. */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { distributedCheckpoint } from '../../../../lib/distributed.js';
import { full } from '../../../../lib/index.js';
import { programArguments } from '../../../run-program.js';

/** Kills in the suite; SHARDWISE_CRASHES=200 for a long run. */
const CRASHES = Number(process.env['SHARDWISE_CRASHES'] ?? 16);

let folder: string;
before(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'shardwise-crash-'));
});
after(() => rmSync(folder, { recursive: true, force: true }));

interface Writer {
  readonly program: ChildProcess;
  readonly output: () => string;
}

function startWriter(form: string): Writer {
  const name = 'parallel/distributed-checkpoint/save/crashing-writer';
  const program = spawn(process.execPath, [...programArguments(name), folder, form], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  let text = '';
  program.stdout?.on('data', (data: Buffer) => {
    text += data;
  });
  return { program, output: () => text };
}

/** The last step that the program says it has saved. */
const lastSaved = (output: string): number =>
  Number([...output.matchAll(/saved (\d+) by/g)].at(-1)?.[1] ?? 0);
const pidsOf = (output: string): number[] => [
  ...new Set([...output.matchAll(/(?:by|other) (\d+)\n/g)].map(([, pid]) => Number(pid))),
];

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await sleep(5);
}

/** The step of the checkpoint, all of whose values must be of that step. */
async function checkedStep(): Promise<number> {
  const state = { step: 0, a: full([3000, 64], 0), b: full([50_000], 0) };
  await distributedCheckpoint.load(folder, state);
  assert.ok(state.step > 0);
  assert.ok(state.a.eq(state.step).all().item(), `step ${state.step}`);
  assert.ok(state.b.eq(state.step).all().item(), `step ${state.step}`);
  return state.step;
}

describe('a writer that is killed', () => {
  for (const form of ['sync', 'async'])
    it(`at ${CRASHES / 2} random moments of ${form} saves leaves the last checkpoint complete`, async function () {
      this.timeout(20_000 * CRASHES);
      let step = existsSync(path.join(folder, 'checkpoint.index.json')) ? await checkedStep() : 0;
      for (let crash = 0; crash < CRASHES / 2; crash++) {
        const { program, output } = startWriter(form);
        const closed = new Promise((resolve) => program.once('close', resolve));
        // A save in the background is complete when the next one has begun.
        const least = form === 'sync' ? step + 1 : step + 2;
        await until(() => lastSaved(output()) >= least && pidsOf(output()).length === 2);
        await sleep(Math.random() * 60);
        // Half of the time one rank is killed, and the other reports it; else all at once.
        const [first, second] = pidsOf(output()) as [number, number];
        const ranks = crash % 4 < 2 ? [first, second] : [crash % 4 === 2 ? first : second];
        for (const pid of ranks) process.kill(pid, 'SIGKILL');
        await closed;
        const said = lastSaved(output());
        step = await checkedStep();
        const complete = form === 'sync' ? said : said - 1;
        assert.ok(step >= complete && step <= said + 1, `${step} after ${said}`);
      }
      const leftovers = readdirSync(folder).filter((name) => name.endsWith('.safetensors'));
      assert.ok(leftovers.length <= 6, String(leftovers));
    });
});
