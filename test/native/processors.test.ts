/** The worker pool is as large as what the process may use, not as the machine. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { programArguments } from '../run-program.js';
import { skipWithoutTools } from '../skip.js';

const threadsOf = (command: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): number =>
  Number(
    execFileSync(
      command,
      [...args, process.execPath, ...programArguments('native/programs/threads')],
      { encoding: 'utf8', env: { ...process.env, ...env } },
    ),
  );

describe('the number of CPU threads', () => {
  before(function () {
    skipWithoutTools(this, 'taskset');
  });

  it('is one if the process may use one processor', function () {
    this.timeout(20_000);
    assert.equal(threadsOf('taskset', ['-c', '0']), 1);
  });

  it('is the number that is asked for, else at most the number of processors', function () {
    this.timeout(20_000);
    assert.equal(threadsOf('env', [], { SHARDWISE_NUM_THREADS: '3' }), 3);
    const { SHARDWISE_NUM_THREADS: _, ...rest } = process.env;
    assert.ok(
      threadsOf('env', [], { ...rest, SHARDWISE_NUM_THREADS: '' }) <= availableParallelism(),
    );
  });
});
