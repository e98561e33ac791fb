/** The option `out` of functions that can write their result into a tensor. Reference: PyTorch. */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  AutogradError,
  add,
  DtypeError,
  float32,
  float64,
  InPlaceError,
  int32,
  int64,
  noGrad,
  ones,
  ShapeError,
  sub,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';

const x = (): Tensor => tensor([1, 2]);

describe('the option out', () => {
  it('receives the result and is returned', () => {
    const out = zeros([2]);
    assert.equal(add(x(), 1, { out }), out);
    assert.deepEqual(out.tolist(), [2, 3]);
    assert.equal(sub(x(), x(), { alpha: 3, out }), out);
    assert.deepEqual(out.tolist(), [-2, -4]);
    assert.equal(out._version, 2);
  });

  it('may be a view, an operand, or overlap one', () => {
    const base = zeros([2, 2]);
    add(x(), 1, { out: base.select(1, 0) });
    assert.deepEqual(base.tolist(), [
      [2, 0],
      [3, 0],
    ]);
    const t = tensor([1, 2, 3]);
    add(t, t, { out: t });
    assert.deepEqual(t.tolist(), [2, 4, 6]);
    add(t.narrow(0, 0, 2), 1, { out: t.narrow(0, 1, 2) });
    assert.deepEqual(t.tolist(), [2, 3, 5]);
  });

  it('has the shape of the result, and a dtype that the result can be cast to', () => {
    const out = zeros([2], { dtype: float64 });
    assert.deepEqual(add(tensor([1, 2], { dtype: int32 }), 1, { out }).tolist(), [2, 3]);
    const narrow = zeros([2], { dtype: float32 });
    assert.deepEqual(add(x().to(float64), 1, { out: narrow }).tolist(), [2, 3]);
    assert.throws(() => add(x(), 1, { out: zeros([2], { dtype: int64 }) }), DtypeError);
    assert.throws(() => add(x(), 1, { out: zeros([3]) }), ShapeError);
    assert.throws(() => add(x(), 1, { out: zeros([1, 2]) }), ShapeError);
    assert.throws(() => add(x(), 1, { out: zeros([1]).expand([2]) }), InPlaceError);
    assert.throws(() => add(x(), 1, { out: 1 as never }), ArgumentError);
    assert.deepEqual(add(x(), 1, { out: undefined }).tolist(), [2, 3]);
  });

  it('is refused where a gradient would be lost', () => {
    const leaf = ones([2]).requiresGrad_();
    assert.throws(() => add(leaf, 1, { out: zeros([2]) }), AutogradError);
    assert.throws(() => add(x(), 1, { out: leaf }), AutogradError);
    assert.throws(() => add(x(), 1, { out: leaf.mul(2) }), AutogradError);
    noGrad(() => add(leaf, 1, { out: leaf }));
    assert.deepEqual(leaf.tolist(), [2, 2]);
  });
});
