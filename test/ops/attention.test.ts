/**
 * scaledDotProductAttention outside the fused kernels (masks with a gradient, second gradients),
 * and the arguments that it refuses.
 */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  amp,
  autograd,
  bfloat16,
  bool,
  type DType,
  finfo,
  float16,
  float64,
  full,
  manualSeed,
  nn,
  ones,
  randn,
  ShapeError,
  type Tensor,
  tensor,
  where,
  zeros,
} from '../../lib/index.js';
import { type Operands, room } from './attention-operands.js';

const { scaledDotProductAttention: sdpa } = nn.functional;
const drawn = (dtype: DType): Operands =>
  [4, 5, 5].map((rows) => randn([1, 2, rows, 3], { dtype }).requiresGrad_()) as Operands;
const near = (got: Tensor, want: Tensor, limit: number, what: string): void => {
  const difference = got.to(float64).sub(want.to(float64)).abs().amax().item() as number;
  assert.ok(difference <= limit, `${what}: differs by ${difference}`);
};
/** A mask [4, 5] whose second row has no key. */
const seen = ones([4, 5], { dtype: bool }).tril();
seen.select(0, 1).fill_(false);

describe('scaledDotProductAttention with a mask that requires a gradient', () => {
  for (const [dtype, limit] of room) {
    it(`gives 0 and gradients of 0 to a row whose keys are all masked, and equals the fused path elsewhere, of ${dtype}`, () => {
      manualSeed(1);
      const operands = drawn(dtype);
      const mask = where(seen, randn([4, 5]), Number.NEGATIVE_INFINITY).to(dtype);
      const learned = mask.clone().requiresGrad_();
      const g = randn([1, 2, 4, 3], { dtype });
      const [got, want] = [learned, mask].map((attnMask) => sdpa(...operands, { attnMask })) as [
        Tensor,
        Tensor,
      ];
      near(got.detach(), want.detach(), limit, 'result');
      assert.equal(got.select(2, 1).abs().sum().item(), 0);
      const ofMask = autograd.grad([got], [...operands, learned], { gradOutputs: [g] }) as Tensor[];
      const fused = autograd.grad([want], operands, { gradOutputs: [g] }) as Tensor[];
      for (const [i, gradient] of fused.entries())
        near(ofMask[i] as Tensor, gradient, 4 * limit, `gradient ${i}`);
      assert.equal(ofMask[3]?.isfinite().all().item(), true);
      assert.equal(ofMask[3]?.select(0, 1).abs().sum().item(), 0);
    });

    it(`equals the fused path in a row that is masked by the lowest finite number, of ${dtype}`, () => {
      manualSeed(2);
      const operands = drawn(dtype);
      const mask = full([4, 5], finfo(dtype).min, { dtype });
      const [got, want] = [mask.clone().requiresGrad_(), mask].map((attnMask) =>
        sdpa(...operands, { attnMask }).detach(),
      ) as [Tensor, Tensor];
      near(got, want, limit, 'result');
      if (dtype !== float16)
        // in float16 the mask does not absorb the score
        near(got, operands[2].detach().to(float64).mean(2, { keepdim: true }), limit, 'mean');
    });

    it(`gives the same finite gradient with createGraph in a row whose keys are all masked, of ${dtype}`, () => {
      manualSeed(3);
      for (const attnMask of [seen, where(seen, 0, Number.NEGATIVE_INFINITY).to(dtype)]) {
        const operands = drawn(dtype);
        const out = sdpa(...operands, { attnMask });
        const g = randn(out.shape, { dtype });
        const plain = autograd.grad([out], operands, {
          gradOutputs: [g],
          retainGraph: true,
        }) as Tensor[];
        const first = autograd.grad([out], operands, {
          gradOutputs: [g],
          createGraph: true,
        }) as Tensor[];
        for (const [i, gradient] of first.entries())
          near(gradient.detach(), plain[i] as Tensor, 4 * limit, `gradient ${i}`);
        const second = autograd.grad(
          [(first[0] as Tensor).mul(first[0] as Tensor).sum()],
          operands,
        ) as Tensor[];
        for (const [i, gradient] of second.entries())
          assert.equal(gradient.isfinite().all().item(), true, `second gradient ${i}`);
        assert.deepEqual(
          first.map((t) => t.dtype),
          [dtype, dtype, dtype],
        );
      }
    });
  }

  it('has correct second gradients in a row whose keys are all masked', () => {
    const mask = where(seen, randn([4, 5], { dtype: float64 }), Number.NEGATIVE_INFINITY);
    const bias = randn([4, 5], { dtype: float64 }).requiresGrad_();
    const attend = (...[q, k, v, b]: readonly Tensor[]): Tensor =>
      sdpa(q as Tensor, k as Tensor, v as Tensor, { attnMask: mask.add(b as Tensor) });
    assert.ok(autograd.gradcheck(attend, [...drawn(float64), bias]));
    assert.ok(autograd.gradgradcheck(attend, [...drawn(float64), bias]));
  });

  it('gives 0 if there are no keys', () => {
    const mask = zeros([2, 0]).requiresGrad_();
    const out = sdpa(randn([2, 3]), randn([0, 3]), randn([0, 4]), { attnMask: mask });
    assert.deepEqual(out.tolist(), zeros([2, 4]).tolist());
    out.sum().backward();
    assert.deepEqual(mask.grad?.shape, [2, 0]);
  });

  it('returns the dtype of autocast', () => {
    const [q, k, v] = [4, 5, 5].map((rows) => randn([1, 2, rows, 3])) as Operands;
    const mask = randn([4, 5]);
    const inRegion = (attnMask: Tensor): Tensor =>
      amp.autocast({ deviceType: 'cpu', dtype: bfloat16 }, () => sdpa(q, k, v, { attnMask }));
    const got = inRegion(mask.clone().requiresGrad_());
    assert.equal(got.dtype, bfloat16);
    near(got.detach(), inRegion(mask), 2e-2, 'result');
  });
});

describe('scaledDotProductAttention', () => {
  const [q, k, v] = [4, 5, 5].map((rows) => randn([2, 3, rows, 4])) as Operands;
  const wrong = {
    isCausal: ['yes', 1, null, 2n, Symbol('x'), {}],
    enableGqa: ['no', 0, null, 2n],
    scale: ['2', Number.NaN, Number.POSITIVE_INFINITY, true, [], 2n, Symbol('x'), tensor(2)],
  };

  for (const [name, values] of Object.entries(wrong)) {
    it(`refuses an invalid ${name}`, () => {
      const refused = (error: Error): boolean =>
        error instanceof ArgumentError &&
        error.message.startsWith(`scaledDotProductAttention: expected ${name} to be`);
      for (const value of values)
        assert.throws(() => sdpa(q, k, v, { [name]: value }), refused, String(value));
    });
  }

  it('takes a mask by position, as PyTorch does', () => {
    assert.deepEqual(sdpa(q, k, v, seen).tolist(), sdpa(q, k, v, { attnMask: seen }).tolist());
  });

  it('accepts zero heads with enableGqa, and names heads that do not divide', () => {
    const of = (heads: number, rows: number): Tensor => randn([2, heads, rows, 4]);
    assert.deepEqual(sdpa(of(0, 4), of(0, 5), of(0, 5), { enableGqa: true }).shape, [2, 0, 4, 4]);
    const refused: [Operands, RegExp][] = [
      [[of(3, 4), of(1, 5), of(3, 5)], /key and value need equally many heads/],
      [[of(3, 4), of(2, 5), of(2, 5)], /query heads must be a multiple of key heads/],
      [[of(3, 4), of(0, 5), of(0, 5)], /query heads must be a multiple of key heads/],
    ];
    for (const [operands, message] of refused)
      assert.throws(
        () => sdpa(...operands, { enableGqa: true }),
        (error: Error) => error instanceof ShapeError && message.test(error.message),
      );
  });

  it('weights all keys equally if queries and keys have no features', () => {
    for (const attnMask of [null, zeros([4, 5]).requiresGrad_()]) {
      const out = sdpa(randn([4, 0]), randn([5, 0]), v.select(0, 0).select(0, 0), { attnMask });
      near(out.detach(), v.select(0, 0).select(0, 0).mean(0).expand([4, 4]), 1e-6, 'mean');
    }
  });
});
