/** V8's young collections are cheap while a step's objects die with the step. */
import assert from 'node:assert/strict';
import { runProgram } from '../run-program.js';

/** The step's last tensors, and what V8 itself keeps. */
const MOST = 0.06;

describe('the young objects of a training step', () => {
  it('die with it, also after collections in the midst of earlier steps', async () => {
    const kept = await runProgram<Record<string, number>>('eager/programs/young-graphs');
    for (const [name, part] of Object.entries(kept)) assert.ok(part <= MOST, `${name}: ${part}`);
  });
});
