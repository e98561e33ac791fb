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

  it('frees in steps with scopes what the program dropped when it built its model', async () => {
    const program = 'eager/programs/replaced-parameter';
    const { allocated, reached } = await runProgram<Record<string, number>>(program);
    assert.ok((allocated as number) < 1.2 * (reached as number), `${allocated} for ${reached}`);
  });

  it('is asked for tensors of typed arrays and for empty ones as for results of ops', async function () {
    this.timeout(60_000);
    // 1.6 GB pass through; at most 128 MiB wait for a young and 256 MiB for a full collection.
    const peaks = await runProgram<Record<string, number>>('eager/programs/typed-arrays');
    for (const [source, peak] of Object.entries(peaks)) assert.ok(peak < 450, `${source}: ${peak}`);
  });
});
