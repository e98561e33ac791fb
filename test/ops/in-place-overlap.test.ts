/** In-place ops whose operands overlap the memory that they write. */
import assert from 'node:assert/strict';
import { arange, float32, fromBlob, int64, type Tensor, tensor } from '../../lib/index.js';

const x = (): Tensor => arange(4).to(float32);
const index = (values: number[]): Tensor => tensor(values, { dtype: int64 });

describe('an in-place op whose source overlaps its target', () => {
  const cases: Record<string, [(t: Tensor) => Tensor, number[]]> = {
    scatter_: [(t) => t.scatter_(0, index([3, 2, 1, 0]), t), [3, 2, 1, 0]],
    'scatter_ from a view': [
      (t) => t.scatter_(0, index([3, 2, 1, 0]), t.narrow(0, 0, 4)),
      [3, 2, 1, 0],
    ],
    scatterAdd_: [(t) => t.scatterAdd_(0, index([3, 3, 3, 3]), t), [0, 1, 2, 9]],
    indexAdd_: [(t) => t.indexAdd_(0, index([3, 2, 1, 0]), t), [3, 3, 3, 3]],
    indexPut_: [(t) => t.indexPut_([index([3, 2, 1, 0])], t), [3, 2, 1, 0]],
    indexCopy_: [(t) => t.indexCopy_(0, index([3, 2, 1, 0]), t), [3, 2, 1, 0]],
    'copy_ of a flip': [(t) => t.copy_(t.flip([0])), [3, 2, 1, 0]],
    'add_ of a shifted view': [(t) => t.narrow(0, 1, 3).add_(t.narrow(0, 0, 3)) && t, [0, 1, 3, 5]],
  };
  for (const [what, [fn, expected]] of Object.entries(cases)) {
    it(`reads the source before it writes: ${what}`, () => {
      assert.deepEqual(fn(x()).tolist(), expected);
    });
  }

  it('is detected for two tensors on one array', () => {
    const array = new Float32Array([1, 1, 1, 1]);
    const [p, q] = [fromBlob(array.subarray(1)), fromBlob(array.subarray(0, 3))];
    p.add_(q);
    assert.deepEqual([...array], [1, 2, 2, 2]);
  });
});
