/** Compiled functions that become garbage free their captures. */
import assert from 'node:assert/strict';
import { runProgram } from '../run-program.js';

describe('compiled functions that are garbage', () => {
  it('leave nothing of their captures on the heap', async function () {
    this.timeout(60_000);
    const { bytesEach } = await runProgram<{ bytesEach: number }>(
      'compile/programs/dropped-captures',
    );
    assert.ok(bytesEach < 1000, `${bytesEach} bytes each`);
  });
});

describe('arguments of compiled functions that are garbage', () => {
  it('are not kept alive by guards, captures or reports', async function () {
    this.timeout(60_000);
    const { kept } = await runProgram<{ kept: number[] }>('compile/programs/kept-arguments');
    assert.deepEqual(kept, []);
  });
});
