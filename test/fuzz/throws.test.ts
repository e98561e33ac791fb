/**
 * A short run of `npm run fuzz -- throws`. A process that dies threw a native error during a
 * garbage collection.
 */
import assert from 'node:assert/strict';
import { throwsCampaign } from './throws.js';
import { contexts } from './throws-contexts.js';

const CALLS = 40_000;

describe('errors of native code', () => {
  it(`survive garbage collections, ${CALLS} in each synchronous context of a small heap`, async function () {
    this.timeout(300_000);
    const deaths: string[] = [];
    const counts = await throwsCampaign(CALLS * contexts.length, CALLS, 240, (death) =>
      deaths.push(death),
    );
    assert.deepEqual(deaths, []);
    for (const context of contexts)
      assert.ok(counts[context].calls >= CALLS, `${context}: ${JSON.stringify(counts[context])}`);
  });
});
