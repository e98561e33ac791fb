/** All calls of the system fail once in each kind of save; `npm run fuzz -- saves` does more. */
import assert from 'node:assert/strict';
import { failingSavesCampaign, saveKinds } from './failing-saves.js';

describe('failing calls of the system', () => {
  for (const kind of saveKinds)
    it(`leave the checkpoint of before, or the new one, in saves of kind ${kind}`, async function () {
      this.timeout(300_000);
      const failures = (await failingSavesCampaign([kind], ['ENOSPC'])).get(kind) ?? 0;
      assert.ok(failures >= 10, `only ${failures} calls failed`);
    });
});
