/**
 * Garbage collection that the library asks for: V8's flags, by which it comes to that, are those of
 * all threads.
 */
import assert from 'node:assert/strict';
import { runProgram } from '../run-program.js';

describe('the garbage collector', () => {
  it('is found by many threads that ask for it at the same moment', async function () {
    this.timeout(60_000);
    assert.deepEqual(await runProgram('eager/collectors'), { failed: 0 });
  });

  it('collects no old objects in steps without scopes, where young ones are all garbage', async function () {
    this.timeout(120_000);
    const { perStep } = await runProgram<{ perStep: number }>('eager/programs/full-collections');
    assert.ok(perStep < 0.2, `${perStep} full collections a step`);
  });
});
