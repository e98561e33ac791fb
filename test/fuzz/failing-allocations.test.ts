/** Steps whose memory runs out leave no memory behind, and the next step is as ever. */
import assert from 'node:assert/strict';
import { failingAllocations, stepKinds } from './failing-allocations.js';

describe('failing allocations', () => {
  for (const kind of stepKinds)
    it(`leave nothing behind in steps of kind ${kind}`, async function () {
      this.timeout(300_000);
      const failures = await failingAllocations(kind);
      assert.ok(failures >= 10, `only ${failures} steps failed`);
    });
});
