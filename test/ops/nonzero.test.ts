/**
 * `nonzero` finds the same elements as a loop, whatever the shape, layout, dtype and share of
 * zeros.
 */
import assert from 'node:assert/strict';
import { bfloat16, bool, float64, int64, rand, type Tensor, zeros } from '../../lib/index.js';

function assertFinds(x: Tensor): void {
  const { shape } = x;
  const expected: number[][] = [];
  x.bool()
    .reshape([-1])
    .toTypedArray()
    .forEach((value, i) => {
      if (!value) return;
      const row = [...shape];
      let rest = i;
      for (let d = shape.length - 1; d >= 0; d--) {
        row[d] = rest % (shape[d] as number);
        rest = Math.floor(rest / (shape[d] as number));
      }
      expected.push(row);
    });
  const rows = x.nonzero();
  assert.deepEqual(rows.shape, [expected.length, shape.length]);
  assert.deepEqual(Array.from(rows.toTypedArray(), Number), expected.flat());
  assert.deepEqual(
    x.nonzero({ asTuple: true }).map((t) => t.shape),
    // PyTorch treats a 0-dim tensor as a vector here
    (shape.length === 0 ? [1] : shape).map(() => [expected.length]),
  );
}

describe('nonzero', () => {
  // The kernels of nonzero and nonzeroRows work in words and tiles, so sizes lie around their ends.
  for (const [share, what] of Object.entries({ 0: 'none', 0.02: 'few', 0.5: 'half', 1: 'all' })) {
    it(`finds all elements if ${what} are nonzero`, () => {
      for (const shape of [
        [],
        [0],
        [3, 0],
        [1],
        [64],
        [65],
        [4095],
        [4096],
        [4097],
        [5, 4096],
        [3, 1, 5000],
        [2, 3, 4, 50, 6],
      ]) {
        const x = rand(shape).lt(Number(share));
        for (const dtype of [bool, int64, bfloat16, float64]) {
          assertFinds(x.to(dtype));
          if (shape.length > 1) assertFinds(x.to(dtype).transpose(0, 1));
        }
      }
      assertFinds(rand([2, 70]).lt(Number(share)).unsqueeze(1).expand([2, 90, 70]));
    });
  }

  it('finds all elements of large tensors, which use larger tiles', () => {
    const x = zeros([3, 2 ** 25], { dtype: bool });
    const places = [0, 8191, 8192, 2 ** 25 - 1];
    for (const at of places) x.narrow(1, at, 1).fill_(true);
    const expected = [0, 1, 2].flatMap((row) => places.map((at) => [row, at]));
    assert.deepEqual(x.nonzero().tolist(), expected);
    x.dispose();
  });
});
