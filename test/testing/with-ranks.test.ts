/** What a test that runs on several ranks fails with. */
import assert, { AssertionError } from 'node:assert/strict';
import { ones } from '../../lib/index.js';
import { type RanksOptions, withRanks } from '../../lib/testing/index.js';

type Context = ThisParameterType<ReturnType<typeof withRanks>>;

/** What `withRanks` rejects with in a test of mocha. */
async function failure(
  test: Context,
  fn: (rank: number) => unknown,
  options: RanksOptions = {},
): Promise<unknown> {
  return withRanks(2, async (rank) => fn(rank), options)
    .call(test)
    .then(
      () => assert.fail('passed'),
      (error: unknown) => error,
    );
}

for (const mode of ['local', 'process'] as const)
  describe(`a failing test of ${mode} ranks`, () => {
    it('names the rank in message and stack, and keeps what an assertion compared', async function () {
      const failing = (rank: number) => assert.deepEqual({ rank }, { rank: 0 });
      const error = await failure(this as Context, failing, { mode });
      assert.ok(error instanceof AssertionError);
      assert.match(error.message, /^rank 1: Expected values to be strictly deep-equal/);
      assert.match(error.stack ?? '', /^AssertionError.*: rank 1: Expected values .*\n.* at /s);
      assert.deepEqual([error.actual, error.expected], [{ rank: 1 }, { rank: 0 }]);
    });

    it('keeps the values of an assertion of another library, as texts if need be', async function () {
      const failing = (rank: number) => {
        if (rank === 1)
          throw Object.assign(new Error('differs'), { actual: ones([2]), expected: [1] });
      };
      const error = (await failure(this as Context, failing, { mode })) as AssertionError;
      assert.equal(error.message, 'rank 1: differs');
      if (mode === 'local') assert.deepEqual(error.expected, [1]);
      else assert.deepEqual([error.actual, error.expected], ['tensor([1., 1.])', '[ 1 ]']);
    });
  });

describe('a failing test of local ranks', () => {
  it('names the rank of an error that cannot be changed', async () => {
    const failing = (rank: number) => {
      if (rank === 1) throw Object.freeze(new Error('frozen'));
    };
    const error = await failure(undefined, failing);
    assert.match((error as Error).message, /rank 1 failed: frozen/);
  });
});
