/** Calls that a segment cannot take leave nothing in its graph. */
import assert from 'node:assert/strict';
import { compile, graphBreak, memory, ones, ShapeError, type Tensor } from '../../../lib/index.js';
import { backends } from '../backends.js';

type Body = (x: Tensor, other: Tensor, refused: Tensor | null) => Tensor;

for (const backend of backends)
  describe(`a segment with backend ${backend}`, () => {
    const broken = (body: Body): Body =>
      compile((...args: Parameters<Body>) => (graphBreak(), body(...args)), { backend });

    it('serves the same calls whether or not a call comes next that it cannot take', () => {
      const body: Body = (x, other, refused) => {
        const y = x.mul(2);
        return refused === null ? y : y.add(other.mul(1)).add(other.add(refused));
      };
      const buffer = memory.owned(() => ones([2]));
      const fn = broken((x, other, refused) => {
        const y = x.mul(2);
        // The memory of an owner may be freed at any time.
        return refused === null ? y : other.add(refused).add(y);
      });
      for (const refused of [buffer, null, buffer, null, null])
        assert.deepEqual(
          fn(ones([2]), ones([2]), refused).tolist(),
          refused === null ? [2, 2] : [4, 4],
        );
      const other = broken(body);
      for (const refused of [null, buffer, null])
        assert.deepEqual(
          other(ones([2]), ones([2]), refused).tolist(),
          refused === null ? [2, 2] : [5, 5],
        );
      buffer.dispose();
    });

    it('lets a call throw whose memory was freed by resize_', () => {
      const freed = ones([2]);
      freed.untypedStorage().resize_(0);
      const fn = broken((x, other) => {
        const y = x.mul(2);
        assert.throws(() => freed.add(1), { code: 'ERR_FREED' });
        return y.add(other);
      });
      for (let call = 0; call < 2; call++)
        assert.deepEqual(fn(ones([2]), ones([2]), null).tolist(), [3, 3]);
    });

    it('goes on after a call whose shapes do not fit', () => {
      const fn = broken((x, other, wrong) => {
        const y = x.mul(2);
        if (wrong !== null) assert.throws(() => wrong.add(other.mul(1)), ShapeError);
        return y.add(other);
      });
      for (const wrong of [ones([3]), null, ones([5]), null])
        assert.deepEqual(fn(ones([2]), ones([2]), wrong).tolist(), [3, 3]);
    });
  });
