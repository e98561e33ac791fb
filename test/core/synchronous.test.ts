/** Functions that run another one inside a scope or mode refuse an asynchronous one. */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { lossParallel } from '../../lib/distributed.js';
import { ArgumentError, amp, inferenceMode, noGrad, scope } from '../../lib/index.js';

const fails = async (): Promise<void> => {
  await null;
  throw new Error('later');
};

const callers: Record<string, () => unknown> = {
  scope: () => scope(fails),
  noGrad: () => noGrad(fails),
  inferenceMode: () => inferenceMode(fails),
  autocast: () => amp.autocast({ deviceType: 'cpu' }, fails),
  lossParallel: () => lossParallel(fails),
};

describe('an asynchronous function', () => {
  for (const [name, call] of Object.entries(callers)) {
    it(`is refused by ${name}, and does not end the process when it fails`, async () => {
      assert.throws(
        call,
        (error) =>
          error instanceof ArgumentError &&
          /expected a synchronous function, got one that returns a promise/.test(error.message),
      );
      await sleep(5); // the runner counts a rejection that nobody handles as a failure
    });
  }
});
