/** The layout of buckets follows a formula, for any sizes. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { DistributedDataParallel } from '../../../lib/distributed.js';
import { empty, float16, float32, nn } from '../../../lib/index.js';
import {
  layoutOf,
  planBuckets,
  type ReducedParameter,
} from '../../../lib/parallel/data-parallel/buckets.js';
import { withRanks } from '../../../lib/testing/index.js';

const MIB = 2 ** 20;

/** Parameters of the given numbers of elements; negative ones are float16. */
function parametersOf(numels: readonly number[]): ReducedParameter[] {
  return numels.map((numel, index) => ({
    index,
    name: String(index),
    parameter: new nn.Parameter(
      empty([Math.abs(numel)], { dtype: numel < 0 ? float16 : float32, device: 'meta' }),
    ),
  }));
}
const bytesOf = (list: readonly ReducedParameter[]): number =>
  list.reduce((sum, { parameter }) => sum + parameter.nbytes, 0);

const numels = fc.array(
  fc.integer({ min: -3_000_000, max: 3_000_000 }).filter((n) => n !== 0),
  { minLength: 1, maxLength: 30 },
);

describe('buckets', () => {
  it('are full when they reach the cap, the first one at 1 MiB', () => {
    fc.assert(
      fc.property(numels, fc.integer({ min: 1, max: 30 }), (sizes, capMb) => {
        const parameters = parametersOf(sizes);
        for (const dtype of [float16, float32]) {
          const buckets = planBuckets(parameters, capMb * MIB).filter(
            ([first]) => first?.parameter.dtype === dtype,
          );
          assert.deepEqual(
            buckets.flat(),
            parameters.filter(({ parameter }) => parameter.dtype === dtype),
          );
          buckets.forEach((list, i) => {
            const cap = (i === 0 ? 1 : capMb) * MIB;
            if (i < buckets.length - 1) assert.ok(bytesOf(list) >= cap);
            assert.ok(bytesOf(list.slice(0, -1)) < cap);
          });
        }
      }),
    );
  });

  it('hold gradients one after the other, each at a multiple of 16 bytes', () => {
    fc.assert(
      fc.property(numels, (sizes) => {
        const list = parametersOf(sizes.map(Math.abs));
        const { offsets, numel } = layoutOf(list);
        let end = 0;
        for (const [i, { parameter }] of list.entries()) {
          const offset = Math.ceil(end / 4) * 4;
          assert.equal(offsets[i], offset);
          end = offset + parameter.numel();
        }
        assert.equal(numel, end);
      }),
    );
  });

  it(
    'follow the parameters in reverse, and from the second step on the order of gradients',
    withRanks(2, () => {
      class Crossed extends nn.Module {
        used2nd = new nn.Linear(300, 1000, { bias: false });
        used1st = new nn.Linear(200, 300, { bias: false });
        used3rd = new nn.Linear(1000, 10, { bias: false });
        forward(x: import('../../../lib/index.js').Tensor) {
          return this.used3rd(this.used2nd(this.used1st(x)));
        }
      }
      const ddp = new DistributedDataParallel(new Crossed());
      const [first, second, third] = ['used1st.weight', 'used2nd.weight', 'used3rd.weight'];
      assert.deepEqual(ddp.bucketLayout, [[third, first, second]]);
      ddp(empty([1, 200]).zero_())
        .sum()
        .backward();
      ddp(empty([1, 200]).zero_());
      assert.deepEqual(ddp.bucketLayout, [[third, second], [first]]);
    }),
  );
});
