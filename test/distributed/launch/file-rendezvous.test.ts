/** Ranks that find each other by a file: consecutive runs, and a file of a run that died. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { initProcessGroup, type TimeoutError } from '../../../lib/distributed.js';
import { programArguments, runProgram } from '../../run-program.js';
import { errorOf } from '../support/on-ranks.js';

const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-meeting-'));
const program = 'distributed/programs/file-rendezvous';

after(() => rmSync(folder, { recursive: true }));

const bothRanks = (file: string, ...more: string[]): Promise<unknown[]> =>
  Promise.all(['0', '1'].map((rank) => runProgram(program, file, rank, ...more)));

/** Until a rank has said in the file who it is. */
async function untilInside(file: string): Promise<void> {
  while (!existsSync(file) || !readFileSync(file, 'latin1').includes('come')) await sleep(20);
}

/** A rank 0 that is killed while it waits for the other. */
async function killedRank(file: string): Promise<void> {
  const child = spawn(process.execPath, [...programArguments(program), file, '0'], {
    stdio: 'ignore',
  });
  const gone = new Promise((resolve) => child.once('exit', resolve));
  await untilInside(file);
  child.kill('SIGKILL');
  await gone;
}

describe('ranks with a file as rendezvous', function () {
  this.timeout(60_000);

  it('remove the file, so that the next run can use its name', async () => {
    const file = path.join(folder, 'twice');
    for (let run = 0; run < 2; run++) {
      assert.deepEqual(await bothRanks(file), [[3], [3]]);
      assert.equal(existsSync(file), false);
    }
  });

  it('can start again after destroyProcessGroup', async () => {
    const file = path.join(folder, 'anew');
    assert.deepEqual(await bothRanks(file, 'anew'), [
      [3, 3],
      [3, 3],
    ]);
    assert.equal(existsSync(file), false);
  });

  it('can have been ranks of other worlds before', async () => {
    assert.deepEqual(await bothRanks(path.join(folder, 'after'), 'elsewhere', '5000'), [[3], [3]]);
  });

  it('get an error if the file is of an earlier run, whichever rank comes first', async () => {
    for (const first of ['0', '1']) {
      const file = path.join(folder, `earlier-${first}`);
      await killedRank(file);
      const text = await runProgram<string>(program, file, first);
      assert.match(
        text,
        new RegExp(
          `^initProcessGroup: ${file} is of an earlier run: remove it, or name another one\\. In it rank 0 is process \\d+, which has ended`,
        ),
      );
    }
  });

  it('get that error also if the earlier world had another size', async () => {
    const file = path.join(folder, 'size');
    await killedRank(file);
    assert.match(
      await runProgram<string>(program, file, '2', '', '5000', '3'),
      new RegExp(`${file} is of an earlier run: remove it, or name another one`),
    );
  });

  it('get an error naming the file if a rank does not come, and the next run is not affected', async () => {
    const file = path.join(folder, 'alone');
    for (let attempt = 0; attempt < 2; attempt++) {
      const error = (await errorOf(
        initProcessGroup(undefined, {
          initMethod: `file://${file}`,
          rank: 0,
          worldSize: 2,
          timeoutMs: 60,
        }),
      )) as TimeoutError;
      assert.match(
        error.message,
        new RegExp(
          `rank 1 of 2 did not come within 60 ms \\(this is rank 0\\)\\. Was it started, with the same file ${file}\\?$`,
        ),
      );
      assert.equal(existsSync(file), false);
    }
  });

  it('get an error mentioning an earlier run if two processes have one rank', async () => {
    const file = path.join(folder, 'number');
    const waiting = runProgram<string>(program, file, '0');
    await untilInside(file);
    const message = await runProgram<string>(program, file, '0');
    assert.match(
      message,
      new RegExp(
        `rank 0 was taken twice: .*two runs need a file each: if ${file} is of an earlier run, remove it`,
      ),
    );
    assert.equal(await waiting, message);
    assert.equal(existsSync(file), false);
  });
});
