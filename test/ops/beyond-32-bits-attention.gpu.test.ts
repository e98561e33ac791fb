/**
 * Attention with more than 2^31 elements of queries, masks or weights equals attention of a few
 * sequences, which other tests compare with float64.
 */
import assert from 'node:assert/strict';
import {
  autograd,
  eye,
  float32,
  scaledDotProductAttention,
  scope,
  type Tensor,
} from '../../lib/index.js';
import {
  assertSame,
  checkRows,
  describeBeyond,
  device,
  gradientOf,
  HEIGHT,
  partsOf,
  random,
  rowsOf,
} from './beyond-32-bits.js';

const firstSize = (x: Tensor): number => x.shape[0] as number;

/** Causal attention of each row of `x` with itself, as `heads` sequences of `length`. */
const attending = (heads: number, length: number, depth: number): ((x: Tensor) => Tensor) => {
  return (x) => {
    const q = x.view([firstSize(x), heads, length, depth]);
    return scaledDotProductAttention(q, q, q, { isCausal: true }).reshape([...x.shape]);
  };
};

describeBeyond('attention', () => {
  it('is correct for many sequences, and so is its gradient', async () => {
    const attend = attending(8, 512, 64);
    await checkRows(8 * 512 * 64, attend);
    await checkRows(8 * 512 * 64, gradientOf(attend));
  });

  it('is correct for many sequences in float32, and so is its gradient', async () => {
    const attend = attending(8, 64, 64);
    const make = (rows: number): Tensor => random([rows, 8 * 64 * 64], float32);
    await checkRows(8 * 64 * 64, attend, make);
    await checkRows(8 * 64 * 64, gradientOf(attend), make);
  });

  it('is correct with one mask for each sequence, and so is its gradient', async () => {
    const [length, depth] = [256, 64] as const;
    const queries = random([rowsOf(length * length), 1, length, depth]);
    const attend = (mask: Tensor, first: number): Tensor[] =>
      scope(() => {
        const q = queries.narrow(0, first, firstSize(mask)).detach().requiresGrad_();
        const out = scaledDotProductAttention(q, q, q, {
          attnMask: mask.view([firstSize(mask), 1, length, length]),
        });
        return [out.detach(), autograd.grad(out, [q], { gradOutputs: q.detach() })[0] as Tensor];
      });
    for (const i of [0, 1])
      await checkRows(length * length, (mask, first) => attend(mask, first)[i] as Tensor);
    queries.dispose();
  });

  it('is correct with dropout of many weights, and so is its gradient', async () => {
    // An identity matrix as values makes the results the kept weights, and the gradient of
    // the values the given one.
    const length = 64;
    const rows = rowsOf(length * length);
    const x = random([rows, 1, length, length]);
    const identity = eye(length, { device, dtype: x.dtype })
      .expand([rows, 1, length, length])
      .clone()
      .requiresGrad_();
    const out = scaledDotProductAttention(x, x, identity, { dropoutP: 0.5 });
    const gradient = autograd.grad(out, [identity], {
      gradOutputs: identity.detach(),
    })[0] as Tensor;
    const parts = partsOf(rows, length * length, HEIGHT).map((first) => {
      const part = (t: Tensor): Tensor => t.detach().narrow(0, first, HEIGHT);
      return {
        kept: part(out).ne(0),
        out: part(out),
        gradient: part(gradient),
        whole: scaledDotProductAttention(part(x), part(x), part(identity)),
      };
    });
    for (const [i, { kept, out, gradient, whole }] of parts.entries()) {
      const share = await kept.to(float32).mean().itemAsync();
      assert.ok(Math.abs(share - 0.5) < 0.03, `part ${i} keeps ${share}`);
      await assertSame(out, whole.mul(2).mul(kept.to(whole.dtype)), `what part ${i} keeps`);
      await assertSame(gradient, out.transpose(-1, -2), `the gradient of part ${i}`);
      const alike = await kept
        .eq(parts[(i + 1) % parts.length]?.kept as Tensor)
        .to(float32)
        .mean()
        .itemAsync();
      assert.ok(Math.abs(alike - 0.5) < 0.03, `parts keep the same at ${alike} of their places`);
    }
    for (const t of [x, identity, out, gradient]) t.dispose();
  });
});
