/** Random numbers of more than 2^31 elements: distant chunks are drawn and differ. */
import assert from 'node:assert/strict';
import {
  autograd,
  bernoulli,
  bfloat16,
  dropout,
  float32,
  full,
  ones,
  rand,
  randint,
  randn,
  type Tensor,
  uint8,
} from '../../lib/index.js';
import { assertSame, describeBeyond, device, HEIGHT, partsOf, rowsOf } from './beyond-32-bits.js';

const COLUMNS = 65_536;
const rows = rowsOf(COLUMNS);
const shape = [rows, COLUMNS];

/** Checks that half of the numbers are high in each chunk, and that chunks differ. */
async function checkDraws(drawn: Tensor, isHigh: (part: Tensor) => Tensor): Promise<void> {
  const parts = partsOf(rows, COLUMNS, HEIGHT).map((first) =>
    isHigh(drawn.narrow(0, first, HEIGHT)),
  );
  for (const [i, part] of parts.entries()) {
    const share = await part.to(float32).mean().itemAsync();
    assert.ok(Math.abs(share - 0.5) < 0.01, `part ${i}: ${share} are high`);
    const alike = await part
      .eq(parts[(i + 1) % parts.length] as Tensor)
      .to(float32)
      .mean()
      .itemAsync();
    assert.ok(Math.abs(alike - 0.5) < 0.01, `parts are alike at ${alike} of their places`);
  }
  drawn.dispose();
}

describeBeyond('random numbers', () => {
  it('have the right moments from uniform_, normal_ and random_', async () => {
    await checkDraws(rand(shape, { device, dtype: bfloat16 }), (part) => part.ge(0.5));
    await checkDraws(randn(shape, { device, dtype: bfloat16 }), (part) => part.ge(0));
    await checkDraws(randint(0, 2, shape, { device, dtype: uint8 }), (part) => part.ne(0));
  });

  it('have the right mean from bernoulli', () =>
    checkDraws(bernoulli(full(shape, 0.5, { device, dtype: bfloat16 })), (part) => part.ne(0)));

  it('have the right mean in dropout and its gradient', async () => {
    const x = ones(shape, { device, dtype: bfloat16 }).requiresGrad_();
    const y = dropout(x, 0.5);
    const gradient = autograd.grad(y, [x], { gradOutputs: x.detach() })[0] as Tensor;
    for (const first of partsOf(rows, COLUMNS, HEIGHT))
      await assertSame(
        gradient.narrow(0, first, HEIGHT),
        y.narrow(0, first, HEIGHT),
        'the gradient',
      );
    await checkDraws(y.detach(), (part) => part.eq(2));
    for (const t of [x, gradient]) t.dispose();
  });
});
