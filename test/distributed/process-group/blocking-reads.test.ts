/**
 * Ops that read values on local ranks: those that would block are refused with advice; those that
 * only check do not block.
 */
import assert from 'node:assert/strict';
import { allReduce } from '../../../lib/distributed.js';
import {
  DistributedError,
  float32,
  index,
  multinomial,
  ones,
  type Tensor,
  tensor,
} from '../../../lib/index.js';
import { onRanks } from '../support/on-ranks.js';

const ops: Record<string, (t: Tensor) => unknown> = {
  nonzero: (t) => t.nonzero(),
  maskedSelect: (t) => t.maskedSelect(t.gt(0)),
  'index with a mask': (t) => index(t, [t.gt(0)]),
  repeatInterleave: (t) => ones([2]).repeatInterleave(t.long()),
  bincount: (t) => t.long().bincount(),
};

describe('an op that reads values during a pending collective', () => {
  for (const [name, op] of Object.entries(ops)) {
    it(`is refused with the advice to await input.read() first: ${name}`, async () => {
      const errors = await onRanks(2, async () => {
        const t = ones([2]);
        allReduce(t);
        let message = 'none';
        try {
          op(t);
        } catch (error) {
          assert.ok(error instanceof DistributedError);
          message = error.message;
        }
        await t.read();
        op(t);
        return message;
      });
      // Whoever comes last does not have to wait.
      const [said] = errors.filter((message) => message !== 'none');
      assert.equal(errors.filter((message) => message === 'none').length, 1);
      assert.match(
        said as string,
        new RegExp(
          `^${name}: waiting here would block ranks .*: the allReduce of .*\`await input.read\\(\\)\` before it`,
        ),
      );
    });
  }

  it('is neither multinomial nor bernoulli: they check their values later', async () => {
    const drawn = await onRanks(2, async () => {
      const weights = tensor([0, 1, 0], { dtype: float32 });
      allReduce(weights);
      const picked = multinomial(weights, 4, { replacement: true });
      const flips = weights.div(2).bernoulli();
      return [...(await picked.read()), ...(await flips.read())].map(Number);
    });
    assert.deepEqual(drawn, [
      [1, 1, 1, 1, 0, 1, 0],
      [1, 1, 1, 1, 0, 1, 0],
    ]);
  });
});
