/** Old steps are removed without a loss of anything that the library did not write. */
import assert from 'node:assert/strict';
import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Checkpointer, distributedCheckpoint } from '../../../../lib/distributed.js';
import { CheckpointError, full, zeros } from '../../../../lib/index.js';

let folder: string;
let run: string;
let archive: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'shardwise-steps-'));
  [run, archive] = [path.join(folder, 'run'), path.join(folder, 'archive')];
  mkdirSync(run);
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const state = (value: number) => ({ t: full([4], value) });
const inRun = (...names: string[]): string => path.join(run, ...names);
const checkpointerOf = (keep = 1) =>
  new Checkpointer({ folder: run, every: 5, keep, async: false, signals: false });

async function train(checkpointer: Checkpointer, ...steps: number[]): Promise<void> {
  for (const step of steps) await checkpointer.step(step, state(step));
}

async function loaded(from: string): Promise<number[]> {
  const target = { t: zeros([4]) };
  await distributedCheckpoint.load(from, target);
  return target.t.tolist() as number[];
}

describe('old steps of a Checkpointer', () => {
  it('that are links are unlinked, and the checkpoints that they name stay', async () => {
    await distributedCheckpoint.save(archive, state(1));
    symlinkSync(archive, inRun('step-1'));
    await train(checkpointerOf(), 5, 10);
    assert.deepEqual(readdirSync(run), ['step-10']);
    assert.deepEqual(await loaded(archive), [1, 1, 1, 1]);
  });

  it('that are links to anything else stay, as does what they name', async () => {
    mkdirSync(archive);
    writeFileSync(path.join(archive, 'notes.txt'), 'mine');
    symlinkSync(archive, inRun('step-1'));
    symlinkSync(path.join(folder, 'nothing'), inRun('step-2'));
    await train(checkpointerOf(), 5, 10);
    assert.deepEqual(readdirSync(run).sort(), ['step-1', 'step-10', 'step-2']);
    assert.equal(readFileSync(path.join(archive, 'notes.txt'), 'utf8'), 'mine');
  });

  it('lose their checkpoint, and keep files of the program', async () => {
    await train(checkpointerOf(), 5);
    writeFileSync(inRun('step-5', 'notes.txt'), 'mine');
    mkdirSync(inRun('step-5', 'plots'));
    await train(checkpointerOf(), 10);
    assert.deepEqual(readdirSync(inRun('step-5')).sort(), ['notes.txt', 'plots']);
    assert.deepEqual(readdirSync(run).sort(), ['step-10', 'step-5']);
  });

  it('without a checkpoint stay if they hold files of the program', async () => {
    mkdirSync(inRun('step-2'));
    writeFileSync(inRun('step-2', 'notes.txt'), 'mine');
    writeFileSync(inRun('step-4'), 'mine');
    for (const name of ['step-03', 'step-3e0', 'step-99999999999999999999']) mkdirSync(inRun(name));
    await train(checkpointerOf(), 5, 10, 15);
    assert.deepEqual(readdirSync(run).sort(), [
      'step-03',
      'step-15',
      'step-2',
      'step-3e0',
      'step-4',
      'step-99999999999999999999',
    ]);
    assert.deepEqual(readdirSync(inRun('step-2')), ['notes.txt']);
  });

  it('go with what a crash left in them', async () => {
    mkdirSync(inRun('step-2'));
    for (const name of [
      'generation-1-rank-0.safetensors',
      'generation-1-rank-1.safetensors.0123abcd-0123456789abcdef.partial',
      'generation-1-rank-1.0123456789abcdef.json',
      'checkpoint.index.json.0123abcd-0123456789abcdef.partial',
    ])
      writeFileSync(inRun('step-2', name), '');
    await train(checkpointerOf(), 5);
    assert.deepEqual(readdirSync(run), ['step-5']);
  });

  it('lose links in them, not the files that these name', async () => {
    await train(checkpointerOf(), 5);
    mkdirSync(archive);
    const file = path.join(archive, 'weights');
    writeFileSync(file, 'mine');
    symlinkSync(file, inRun('step-5', 'generation-2-rank-0.safetensors'));
    await train(checkpointerOf(), 10);
    assert.deepEqual(readdirSync(run), ['step-10']);
    assert.equal(readFileSync(file, 'utf8'), 'mine');
  });
});

describe('a step of a Checkpointer whose folder is a link', () => {
  it('is resumed from, and not saved to', async () => {
    await distributedCheckpoint.save(archive, state(1));
    symlinkSync(archive, inRun('step-5'));
    await assert.rejects(
      train(checkpointerOf(), 5),
      (error: Error) => error instanceof CheckpointError && /step-5 is a link/.test(error.message),
    );
    assert.deepEqual(await loaded(archive), [1, 1, 1, 1]);
    const checkpointer = checkpointerOf();
    assert.equal(await checkpointer.resume({ t: zeros([4]) }), 5);
    await train(checkpointer, 10);
    assert.deepEqual(readdirSync(run), ['step-10']);
    assert.deepEqual(await loaded(archive), [1, 1, 1, 1]);
  });

  it('is not saved to if the link comes after the first save', async () => {
    const checkpointer = checkpointerOf(2);
    await train(checkpointer, 5);
    await distributedCheckpoint.save(archive, state(1));
    symlinkSync(archive, inRun('step-10'));
    await assert.rejects(train(checkpointer, 10), /step-10 is a link/);
    assert.ok(lstatSync(inRun('step-10')).isSymbolicLink());
    assert.ok(existsSync(inRun('step-5', 'checkpoint.index.json')));
    assert.deepEqual(await loaded(archive), [1, 1, 1, 1]);
  });
});
