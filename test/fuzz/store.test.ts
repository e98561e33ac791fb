/** A few seconds of `npm run fuzz -- store`, with a fixed seed. */
import assert from 'node:assert/strict';
import { storeCampaign } from './store.js';

describe('fuzzing a TCPStore', () => {
  it('finds nothing in some seconds of hostile clients', async function () {
    this.timeout(120_000);
    const { attacks, rounds, findings } = await storeCampaign(1, 4);
    assert.deepEqual(findings, [], 'again: npm run fuzz -- store --seed 1');
    assert.ok(rounds > 2 && Object.values(attacks).reduce((a, b) => a + b) > 10);
  });
});
