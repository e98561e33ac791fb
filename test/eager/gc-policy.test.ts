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
});
