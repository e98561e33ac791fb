/** addRmsNorm has the values and gradients of add followed by rmsNorm. */
import assert from 'node:assert/strict';
import {
  addRmsNorm,
  amp,
  autograd,
  bfloat16,
  DtypeError,
  float16,
  float32,
  float64,
  nn,
  randn,
  rmsNorm,
  ShapeError,
  type Tensor,
} from '../../lib/index.js';

const make = (...shape: number[]): Tensor => randn(shape, { dtype: float64 }).requiresGrad_();
const close = (a: Tensor | null | undefined, b: Tensor | null | undefined): boolean =>
  a?.allclose(b as Tensor, { rtol: 1e-12, atol: 1e-13 }) === true;

describe('addRmsNorm', () => {
  for (const weighted of [true, false]) {
    it(`has the values and gradients of add followed by rmsNorm, ${weighted ? 'with' : 'without'} a weight`, () => {
      const [x, residual, weight] = [make(3, 5, 37), make(3, 5, 37), weighted ? make(37) : null];
      const variables = weight === null ? [x, residual] : [x, residual, weight];
      const [c, d] = [make(3, 5, 37).detach(), make(3, 5, 37).detach()];
      const sum = x.add(residual);
      const expected = [rmsNorm(sum, [37], weight, 1e-5), sum] as const;
      const actual = addRmsNorm(x, residual, [37], weight, 1e-5);
      assert.ok(close(actual[0], expected[0]) && actual[1].equal(expected[1]));
      // Losses of each result, and of both.
      for (const loss of [
        ([y]: readonly Tensor[]) => (y as Tensor).mul(c).sum(),
        ([, h]: readonly Tensor[]) => (h as Tensor).mul(d).sum(),
        ([y, h]: readonly Tensor[]) =>
          (y as Tensor)
            .mul(c)
            .add((h as Tensor).mul(d))
            .sum(),
      ]) {
        const ask = (results: readonly Tensor[]): (Tensor | null)[] =>
          autograd.grad(loss(results), variables, { retainGraph: true, allowUnused: true });
        const wanted = ask(expected);
        ask(actual).forEach((g, i) =>
          assert.ok(g === null ? wanted[i] === null : close(g, wanted[i]), `gradient ${i}`),
        );
      }
    });
  }

  it('has correct first and second gradients', () => {
    const [x, residual, weight] = [make(2, 3), make(2, 3), make(3)];
    const fn = (a: Tensor, b: Tensor, w: Tensor): Tensor[] => addRmsNorm(a, b, [3], w, 1e-3);
    assert.ok(autograd.gradcheck(fn, [x, residual, weight]));
    assert.ok(autograd.gradgradcheck(fn, [x, residual, weight]));
  });

  it('rounds the sum to the low precision before it normalises', () => {
    for (const dtype of [bfloat16, float16]) {
      const [x, residual, weight] = [
        randn([4, 129]).to(dtype),
        randn([4, 129]).mul(30).to(dtype),
        randn([129]).to(dtype),
      ];
      const [y, h] = addRmsNorm(x, residual, [129], weight, 1e-6);
      assert.ok(h.equal(x.add(residual)) && y.equal(rmsNorm(h, [129], weight, 1e-6)));
    }
  });

  it('promotes summands, takes any layout and several dims, and runs under autocast', () => {
    const [x, residual] = [randn([4, 3, 2]), randn([4, 3, 2]).to(bfloat16)];
    const [y, h] = addRmsNorm(x.movedim(0, 1), residual.movedim(0, 1), [4, 2]);
    assert.equal(h.dtype, float32);
    assert.ok(y.allclose(rmsNorm(x.movedim(0, 1).add(residual.movedim(0, 1)), [4, 2])));
    const [mixed] = amp.autocast({ deviceType: 'cpu', dtype: bfloat16 }, () =>
      nn.functional.addRmsNorm(residual, residual, [3, 2]),
    );
    assert.equal(mixed.dtype, float32);
  });

  it('names the argument that does not fit', () => {
    assert.throws(() => addRmsNorm(randn([2, 3]), randn([3]), [3]), ShapeError);
    assert.throws(() => addRmsNorm(randn([2, 3]), randn([2, 3]), [2]), ShapeError);
    assert.throws(
      () => addRmsNorm(randn([2, 3]), randn([2, 3]), [3], randn([3], { dtype: float64 })),
      DtypeError,
    );
    assert.throws(() => addRmsNorm(randn([2, 3]).long(), randn([2, 3]).long(), [3]), DtypeError);
  });
});
