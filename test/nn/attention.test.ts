/** Masks of nn.MultiheadAttention, alone and together, and the arguments that it refuses. */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  amp,
  bfloat16,
  bool,
  DtypeError,
  finfo,
  float32,
  float64,
  full,
  int64,
  nn,
  ones,
  randn,
  ShapeError,
  type Tensor,
  tensor,
  where,
  zeros,
} from '../../lib/index.js';

const [batch, heads, queries, keys] = [2, 2, 4, 6];
const attention = new nn.MultiheadAttention(8, heads, { batchFirst: true, dtype: float64 });
const q = randn([batch, queries, 8], { dtype: float64 });
const kv = randn([batch, keys, 8], { dtype: float64 });
const causal = ones([queries, keys], { dtype: bool }).triu({ diagonal: 1 });
const padding = tensor([
  [true, false, false, false, true, true],
  [false, false, true, false, false, false],
]);
const added = (mask: Tensor): Tensor =>
  where(mask, Number.NEGATIVE_INFINITY, zeros([], { dtype: float64 }));

function near(got: Tensor, want: Tensor, what?: string): void {
  assert.deepEqual(got.shape, want.shape, what);
  assert.ok(got.allclose(want, { rtol: 1e-5, atol: got.dtype === float32 ? 1e-6 : 1e-10 }), what);
}

/** Outputs of calls with and without weights, which must be equal. */
function bothWays(options: nn.MultiheadAttentionCall): [Tensor, Tensor] {
  const [out, weights] = attention(q, kv, kv, options);
  const [fused, none] = attention(q, kv, kv, { ...options, needWeights: false });
  assert.equal(none, null);
  near(fused, out, 'with and without weights');
  return [out, weights as Tensor];
}

/** The result of the module with one mask [batch * heads, queries, keys] for everything. */
function hiddenBy(mask: Tensor): Tensor {
  return bothWays({
    attnMask: mask.expand([batch, heads, queries, keys]).reshape([batch * heads, queries, keys]),
  })[0];
}

describe('nn.MultiheadAttention', () => {
  it('masks causally with isCausal, with and without weights, and with a padding mask', () => {
    const [out, weights] = bothWays({ isCausal: true });
    near(out, hiddenBy(causal));
    assert.equal(weights.mul(causal).abs().sum().item(), 0);
    const both = causal.logicalOr(padding.reshape([batch, 1, 1, keys]));
    for (const keyPaddingMask of [padding, added(padding)])
      near(bothWays({ isCausal: true, keyPaddingMask })[0], hiddenBy(both));
  });

  it('uses attnMask alone if it is given together with isCausal', () => {
    const attnMask = ones([queries, keys], { dtype: bool }).triu({ diagonal: 2 });
    near(bothWays({ attnMask, isCausal: true })[0], bothWays({ attnMask })[0]);
  });

  it('merges bool masks and added masks', () => {
    const bias = randn([queries, keys], { dtype: float64 });
    const hidden = padding.reshape([batch, 1, 1, keys]);
    const want = bothWays({
      attnMask: where(hidden, Number.NEGATIVE_INFINITY, bias)
        .expand([batch, heads, queries, keys])
        .reshape([-1, queries, keys]),
    })[0];
    for (const keyPaddingMask of [padding, added(padding)])
      near(bothWays({ attnMask: bias, keyPaddingMask })[0], want);
    near(
      bothWays({ attnMask: causal, keyPaddingMask: added(padding) })[0],
      hiddenBy(causal.logicalOr(hidden)),
    );
    near(
      bothWays({ attnMask: causal, keyPaddingMask: padding })[0],
      hiddenBy(causal.logicalOr(hidden)),
    );
  });

  it('accepts masks without a batch: [heads, queries, keys] and [keys]', () => {
    const attnMask = randn([heads, queries, keys], { dtype: float64 });
    const keyPaddingMask = padding.select(0, 0);
    const [q1, kv1] = [q.select(0, 0), kv.select(0, 0)];
    const [want] = attention(q1.unsqueeze(0), kv1.unsqueeze(0), kv1.unsqueeze(0), {
      attnMask,
      keyPaddingMask: keyPaddingMask.unsqueeze(0),
    });
    near(attention(q1, kv1, kv1, { attnMask, keyPaddingMask })[0], want.squeeze(0));
    assert.throws(
      () => attention(q1, kv1, kv1, { keyPaddingMask: keyPaddingMask.unsqueeze(0) }),
      /expected keyPaddingMask of shape \[6\], \[keys\], got \[1, 6\]/,
    );
  });

  it('gives weights of 0 and finite gradients to a row whose keys are all masked', () => {
    const keyPaddingMask = padding.clone();
    keyPaddingMask.select(0, 1).fill_(true);
    const [, weights] = bothWays({ keyPaddingMask, averageAttnWeights: false });
    assert.equal(weights.select(0, 1).abs().sum().item(), 0);
    const bias = full([queries, keys], Number.NEGATIVE_INFINITY, {
      dtype: float64,
    }).requiresGrad_();
    for (const needWeights of [true, false]) {
      const x = q.clone().requiresGrad_();
      const [out] = attention(x, kv, kv, { attnMask: bias, keyPaddingMask, needWeights });
      out.sum().backward();
      assert.equal(x.grad?.abs().sum().item(), 0);
      assert.equal(bias.grad?.abs().sum().item(), 0);
    }
  });

  it('weights keys equally that the lowest finite number masks all, causal or not', () => {
    const layer = new nn.MultiheadAttention(8, heads, { batchFirst: true });
    const [x, low] = [randn([1, 3, 8]), full([1, 3], finfo(float32).min)];
    const [, weights] = layer(x, x, x, { keyPaddingMask: low });
    near(weights as Tensor, full([1, 3, 3], 1 / 3));
    near(
      layer(x, x, x, { keyPaddingMask: low, isCausal: true, needWeights: false })[0],
      layer(x, x, x, { keyPaddingMask: low, isCausal: true })[0],
    );
  });

  it('converts masks to the low precision under autocast', () => {
    const layer = new nn.MultiheadAttention(8, heads, { batchFirst: true });
    const x = randn([2, 5, 8]);
    for (const keyPaddingMask of [zeros([2, 5], { dtype: bool }), zeros([2, 5])])
      for (const needWeights of [true, false]) {
        const [out] = amp.autocast({ deviceType: 'cpu', dtype: bfloat16 }, () =>
          layer(x, x, x, { keyPaddingMask, isCausal: true, needWeights }),
        );
        assert.equal(out.dtype, bfloat16);
        assert.ok(out.to(float32).allclose(layer(x, x, x, { isCausal: true })[0], { atol: 0.05 }));
      }
  });

  it('refuses masks of other shapes, with the name and the expected shapes', () => {
    const refused: [nn.MultiheadAttentionCall, RegExp][] = [
      [
        { attnMask: zeros([keys, queries]) },
        /expected attnMask of shape \[4, 6\] or \[4, 4, 6\], \[queries, keys\] or \[batch \* heads, queries, keys\], got \[6, 4\]/,
      ],
      [{ attnMask: zeros([batch * heads, keys, queries]) }, /got \[4, 6, 4\]/],
      [{ attnMask: zeros([queries * keys]) }, /got \[24\]/],
      [
        { attnMask: zeros([batch, heads, queries, keys]) },
        /got \[2, 2, 4, 6\]; expand or reshape it to that/,
      ],
      [{ attnMask: zeros([batch, queries, keys]) }, /got \[2, 4, 6\]/],
      [
        { keyPaddingMask: zeros([keys, batch]) },
        /expected keyPaddingMask of shape \[2, 6\], \[batch, keys\], got \[6, 2\]/,
      ],
      [{ keyPaddingMask: zeros([keys]) }, /got \[6\]/],
      [{ keyPaddingMask: zeros([batch, queries]) }, /got \[2, 4\]/],
    ];
    for (const [options, message] of refused)
      for (const needWeights of [true, false])
        assert.throws(
          () => attention(q, kv, kv, { ...options, needWeights }),
          (error: Error) => error instanceof ShapeError && message.test(error.message),
          String(message),
        );
  });

  it('refuses integer masks, which are neither bool nor added', () => {
    for (const name of ['attnMask', 'keyPaddingMask']) {
      const mask = ones(name === 'attnMask' ? [queries, keys] : [batch, keys], { dtype: int64 });
      const message = new RegExp(
        `expected ${name} to be bool .* got int64; if 1 means leave out, pass mask\\.ne\\(0\\)`,
      );
      assert.throws(
        () => attention(q, kv, kv, { [name]: mask }),
        (error: Error) => error instanceof DtypeError && message.test(error.message),
      );
    }
  });

  it('refuses masks that are not tensors and flags that are not booleans, and takes masks by position', () => {
    for (const name of [
      'attnMask',
      'keyPaddingMask',
      'needWeights',
      'averageAttnWeights',
      'isCausal',
    ])
      for (const value of [[[1]], 3, 2n, 'x', Symbol('x'), {}]) {
        const refused = (error: Error): boolean =>
          error instanceof ArgumentError && error.message.includes(name);
        assert.throws(
          () => attention(q, kv, kv, { [name]: value }),
          refused,
          `${name}: ${String(value)}`,
        );
      }
    assert.deepEqual(
      attention(q, kv, kv, padding)[0].tolist(),
      attention(q, kv, kv, { keyPaddingMask: padding })[0].tolist(),
    );
    for (const name of ['bias', 'batchFirst'])
      assert.throws(
        () => new nn.MultiheadAttention(8, 2, { [name]: 'no' }),
        new RegExp(`expected ${name} to be true or false`),
      );
  });

  it('refuses values and batches that do not fit keys and queries', () => {
    assert.throws(() => attention(q, kv, kv.slice(1, 0, 5)), ShapeError);
    assert.throws(
      () => attention(q, kv.slice(0, 0, 1), kv.slice(0, 0, 1)),
      /batches of one size, got query, key and value of shapes \[2, 4, 8\], \[1, 6, 8\]/,
    );
  });
});
