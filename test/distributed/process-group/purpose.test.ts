/** `withPurpose`: ranks that call a collective for different reasons get an error that names both. */
import assert from 'node:assert/strict';
import { allReduce, launch, withPurpose } from '../../../lib/distributed.js';
import { ones } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';

describe('the purpose of collectives', () => {
  it(
    'changes nothing where it is equal on all ranks',
    withRanks(2, async () => {
      const x = ones([2]);
      assert.equal(
        withPurpose('of the loss', () => {
          allReduce(x);
          return 3;
        }),
        3,
      );
      assert.deepEqual([...(await x.read())], [2, 2]);
    }),
  );

  it('is quoted in the error of ranks that have different ones, with the advice', async () => {
    const run = launch(2, async (rank) => {
      const x = ones([2]);
      withPurpose('of step 3', () =>
        withPurpose(`of ${rank === 0 ? 'losses' : 'weights'}\nReduce in one order.`, () =>
          allReduce(x),
        ),
      );
      await x.read();
    });
    await assert.rejects(run, (error: Error) => {
      for (const text of ['of step 3 of losses', 'of step 3 of weights', 'Reduce in one order.'])
        assert.ok(error.message.includes(text), error.message);
      return true;
    });
  });

  it('is refused if it is no text, or for an asynchronous function', () => {
    assert.throws(() => withPurpose('', () => 1), { code: 'ERR_ARGUMENT' });
    assert.throws(() => withPurpose('of x', 3 as never), { code: 'ERR_ARGUMENT' });
    assert.throws(() => withPurpose('of x', async () => 1), { code: 'ERR_ARGUMENT' });
  });
});
