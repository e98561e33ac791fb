/** A run that is saved every few steps, and stopped by a signal, goes on where it was. */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Checkpointer, distributedCheckpoint, launch } from '../../../../lib/distributed.js';
import { ArgumentError, CheckpointError, full, zeros } from '../../../../lib/index.js';
import { programArguments } from '../../../run-program.js';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'shardwise-checkpointer-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const steps = (): string[] =>
  readdirSync(folder).sort((a, b) => Number(a.slice(5)) - Number(b.slice(5)));

describe('a Checkpointer', () => {
  for (const isAsync of [true, false])
    it(`saves every few steps, keeps the last, and resumes (async: ${isAsync})`, async () => {
      const options = { folder, every: 3, keep: 2, async: isAsync, signals: false };
      await launch(2, async () => {
        const state = { t: zeros([4]), position: 0 };
        await using checkpointer = new Checkpointer(options);
        assert.equal(await checkpointer.resume(state), null);
        for (let step = 1; step <= 11; step++) {
          state.t.add_(1);
          state.position = 10 * step;
          await checkpointer.step(step, state);
        }
      });
      assert.deepEqual(steps(), ['step-6', 'step-9']);
      await launch(3, async () => {
        const state = { t: zeros([4]), position: 0 };
        const checkpointer = new Checkpointer(options);
        assert.equal(await checkpointer.resume(state), 9);
        assert.equal(state.position, 90);
        assert.deepEqual([...(await state.t.read())], [9, 9, 9, 9]);
        await checkpointer.close();
      });
    });

  it('refuses a folder with checkpoints of later steps, unless it resumed from them', async () => {
    const options = { folder, every: 1, keep: 1, async: false, signals: false };
    const earlier = new Checkpointer(options);
    await earlier.save(100, { t: full([4], 1) });
    const later = new Checkpointer(options);
    await assert.rejects(
      later.step(1, { t: zeros([4]) }),
      (error: Error) =>
        error instanceof CheckpointError && /step-100.*Call resume/.test(error.message),
    );
    assert.deepEqual(steps(), ['step-100']);
    assert.equal(await later.resume({ t: zeros([4]) }), 100);
    await later.step(101, { t: zeros([4]) });
    assert.deepEqual(steps(), ['step-101']);
  });

  it('does not count a damaged checkpoint among those that it keeps', async () => {
    const options = { folder, every: 1, keep: 2, async: false, signals: false };
    const earlier = new Checkpointer(options);
    for (const step of [5, 10]) await earlier.save(step, { t: full([100], step) });
    truncateSync(path.join(folder, 'step-10', 'generation-1-rank-0.safetensors'), 100);
    const { warn } = console;
    console.warn = () => {};
    const next = new Checkpointer(options);
    assert.equal(await next.resume({ t: zeros([100]) }).finally(() => (console.warn = warn)), 5);
    for (let step = 6; step <= 8; step++) await next.step(step, { t: full([100], step) });
    assert.deepEqual(steps(), ['step-7', 'step-8']);
  });

  it('resumes from the checkpoint before if the last is damaged or incomplete, and says so', async () => {
    const checkpointer = new Checkpointer({
      folder,
      every: 1,
      keep: 3,
      async: false,
      signals: false,
    });
    for (let step = 1; step <= 3; step++) await checkpointer.step(step, { t: full([100], step) });
    truncateSync(path.join(folder, 'step-3', 'generation-1-rank-0.safetensors'), 100);
    mkdirSync(path.join(folder, 'step-4'));
    const { warn } = console;
    const warnings: string[] = [];
    console.warn = (text: string) => warnings.push(text);
    const state = { t: zeros([100]) };
    const step = await checkpointer.resume(state).finally(() => {
      console.warn = warn;
    });
    assert.equal(step, 2);
    assert.equal(state.t.sum().item(), 200);
    assert.match(warnings[0] as string, /step 3 cannot be loaded, trying the one before/);
    await assert.rejects(
      checkpointer.resume({ other: zeros([1]) }),
      /the checkpoint lacks "other"/,
    );
    writeFileSync(path.join(folder, 'step-2', 'checkpoint.index.json'), '');
    rmSync(path.join(folder, 'step-1'), { recursive: true });
    console.warn = () => {};
    await assert.rejects(checkpointer.resume(state), /step-3/).finally(() => {
      console.warn = warn;
    });
  });

  it('removes what a crash left, but nothing else', async () => {
    mkdirSync(path.join(folder, 'step-2'));
    mkdirSync(path.join(folder, 'mine'));
    await distributedCheckpoint.save(path.join(folder, 'step-3'), { a: 1 });
    const checkpointer = new Checkpointer({ folder, every: 1, async: false, signals: false });
    await checkpointer.step(5, { a: 2 });
    assert.deepEqual(readdirSync(folder).sort(), ['mine', 'step-5']);
  });

  it('refuses bad options and steps', async () => {
    const make = (options: object) => () => new Checkpointer({ folder, every: 1, ...options });
    for (const bad of [{ every: 0 }, { keep: 0 }, { folder: '' }, { async: 1 }, { each: 3 }])
      assert.throws(make(bad), ArgumentError);
    const checkpointer = make({ signals: false })();
    await assert.rejects(checkpointer.step(-1, {}), ArgumentError);
  });
});

const startRun = (...args: string[]) => startProgram('stoppable-run', ...args);

/** A program, what it prints, and how it ended. */
function startProgram(file: string, ...args: string[]) {
  const name = `parallel/distributed-checkpoint/runs/${file}`;
  const program: ChildProcess = spawn(
    process.execPath,
    [...programArguments(name), folder, ...args],
    { stdio: ['ignore', 'pipe', 'pipe'] },
  );
  let text = '';
  for (const stream of [program.stdout, program.stderr])
    stream?.on('data', (data: Buffer) => {
      text += data;
    });
  const ended = new Promise<{ code: number | null; signal: string | null }>((resolve) => {
    program.once('close', (code, signal) => resolve({ code, signal }));
  });
  const until = async (pattern: RegExp): Promise<RegExpMatchArray> => {
    for (;;) {
      const match = text.match(pattern);
      if (match !== null) return match;
      assert.deepEqual([program.exitCode, program.signalCode], [null, null], text);
      await sleep(10);
    }
  };
  return { program, ended, until, output: () => text };
}

describe('a run that gets a signal', () => {
  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    it(`saves on ${signal} at one step of all ranks, prints how to go on, and goes on`, async function () {
      this.timeout(60_000);
      const run = startRun('1000', '100000');
      await run.until(/step 5\n/);
      run.program.kill(signal);
      if (signal === 'SIGINT') run.program.kill(signal); // a terminal signals the ranks, too
      const { signal: by } = await run.ended;
      assert.equal(by, signal, run.output());
      const [, saved, command] = run
        .output()
        .match(/saved \S*step-(\d+)\. To go on: (.*)\n/) as unknown as [string, string, string];
      assert.match(command, /^node .*stoppable-run\.[jt]s \S+ 1000 100000$/);
      assert.deepEqual(steps(), [`step-${saved}`]);
      const next = startRun('1000', String(Number(saved) + 2));
      assert.deepEqual(await next.ended, { code: 0, signal: null });
      assert.match(next.output(), new RegExp(`from ${saved} at ${saved}\n`));
    });

  it('ends at once at a second signal, and keeps the last checkpoint', async function () {
    this.timeout(60_000);
    const run = startRun('4', '100000');
    await run.until(/step 9\n/);
    const [, pid] = await run.until(/rank 1 is (\d+)\n/);
    process.kill(Number(pid), 'SIGSTOP'); // so that the ranks never agree
    run.program.kill('SIGINT');
    await sleep(1_200);
    run.program.kill('SIGINT');
    process.kill(Number(pid), 'SIGCONT');
    const { signal } = await run.ended;
    assert.equal(signal, 'SIGINT');
    assert.ok(steps().length > 0, run.output());
  });

  it('stops all ranks if one of them gets it', async function () {
    this.timeout(60_000);
    const run = startRun('1000', '100000');
    await run.until(/step 5\n/);
    const [, pid] = await run.until(/rank 2 is (\d+)\n/);
    process.kill(Number(pid), 'SIGTERM');
    await run.ended;
    assert.match(run.output(), /saved \S*step-\d+\. To go on/);
    assert.equal(steps().length, 1);
  });
});

describe('a Checkpointer that is closed during a save', () => {
  const complete = () => path.join(folder, 'step-1', 'checkpoint.index.json');

  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    it(`completes the save on ${signal}, then ends by it`, async function () {
      this.timeout(60_000);
      const run = startProgram('closing-run');
      for (const rank of [0, 1]) await run.until(new RegExp(`rank ${rank} closes\\n`));
      run.program.kill(signal);
      await run.until(new RegExp(`${signal}: ending when the save is complete`));
      await sleep(200);
      assert.equal(existsSync(complete()), false);
      writeFileSync(path.join(folder, 'go'), '');
      assert.equal((await run.ended).signal, signal, run.output());
      assert.doesNotMatch(run.output(), /has closed/);
      assert.match(run.output(), new RegExp(`${signal}: saved \\S*step-1\\. To go on: node .*\n`));
      assert.ok(existsSync(complete()), run.output());
      const state = { t: zeros([1000]) };
      await distributedCheckpoint.load(path.join(folder, 'step-1'), state);
      assert.equal(state.t.sum().item(), 7000);
    });

  it('ends at once at a second signal', async function () {
    this.timeout(60_000);
    const run = startProgram('closing-run');
    for (const rank of [0, 1]) await run.until(new RegExp(`rank ${rank} closes\\n`));
    run.program.kill('SIGINT');
    await run.until(/SIGINT: ending/);
    await sleep(1_200);
    run.program.kill('SIGINT');
    assert.equal((await run.ended).signal, 'SIGINT', run.output());
    assert.equal(existsSync(complete()), false);
  });
});
