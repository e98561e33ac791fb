/** Attention dropout drops the same weights on every device, and its gradients match. */
import assert from 'node:assert/strict';
import {
  type DType,
  eye,
  float32,
  float64,
  manualSeed,
  nn,
  ones,
  randn,
  type Tensor,
  where,
  zerosLike,
} from '../../lib/index.js';
import { skipWithoutCuda } from '../skip.js';
import { flat, near, type Operands, room, withGradients } from './attention-operands.js';

const { functional: F } = nn;
const P = 0.3;
/** The factor of a kept weight. 16 random bits decide, so P is a multiple of 2^-16. */
const FACTOR = 65536 / (65536 - Math.round(65536 * P));
const SEED = 7;
/**
 * Numbers of queries and keys. The number of keys is also the depth of the values, so that the
 * kernels for depths up to 64, up to 128, beyond and odd all run.
 */
const sizes = [
  [130, 128],
  [70, 40],
  [33, 37],
  [20, 150],
  [5, 1],
] as const;

interface Case {
  readonly q: Tensor;
  readonly k: Tensor;
  /** The identity matrix, so that the result is the weights. */
  readonly v: Tensor;
  readonly g: Tensor;
}

function drawn(dtype: DType, queries: number, keys: number): Case {
  const depth = keys <= 64 ? 32 : 104;
  const make = (...shape: number[]): Tensor =>
    randn([1, 2, ...shape], { dtype: float64 })
      .mul(0.3)
      .to(dtype);
  return {
    q: make(queries, depth),
    k: make(keys, depth),
    v: eye(keys, { dtype }).expand([1, 2, keys, keys]),
    g: make(queries, keys),
  };
}

/** The result and the gradients of q, k and v. */
function attention(
  { q, k, v, g }: Case,
  device: 'cpu' | 'cuda',
  dropoutP: number,
  isCausal = false,
): Tensor[] {
  const operands = [q, k, v].map((t) => t.to(device)) as Operands;
  manualSeed(SEED);
  return withGradients(operands, g.to(device), (leaves) =>
    F.scaledDotProductAttention(...leaves, { dropoutP, isCausal }),
  ).map((t) => t.cpu());
}

const isZero = (t: Tensor): boolean[] => flat(t).map((value) => value === 0);

for (const device of ['cpu', 'cuda'] as const) {
  describe(`attention dropout on ${device}`, () => {
    before(function () {
      if (device === 'cuda') skipWithoutCuda(this);
    });

    for (const [dtype, part] of room)
      for (const [queries, keys] of sizes)
        for (const isCausal of [false, true])
          it(`drops weights and scales the others in values and gradients, of ${dtype}, ${queries} x ${keys}${isCausal ? ', causal' : ''}`, () => {
            const drawnCase = drawn(dtype, queries, keys);
            const { q, k, v, g } = drawnCase;
            const [out, ...gradients] = attention(drawnCase, device, P, isCausal) as [
              Tensor,
              Tensor,
              Tensor,
              Tensor,
            ];
            const weights = attention(drawnCase, device, 0, isCausal)[0] as Tensor;
            const kept = out.ne(0);
            const zero = zerosLike(weights);
            near(out, where(kept, weights.to(float64).mul(FACTOR).to(dtype), zero), part, 'result');
            // The reference in float64 with the kept weights.
            const exact = [q, k, v].map((t) => t.to(float64)) as Operands;
            const [, ...wanted] = withGradients(exact, g.to(float64), ([eq, ek, ev]) => {
              const scores = eq.matmul(ek.transpose(-2, -1)).div(Math.sqrt(q.shape[3] as number));
              const seen = isCausal
                ? where(ones([queries, keys]).tril().ne(0), scores, Number.NEGATIVE_INFINITY)
                : scores;
              return seen.softmax(-1).mul(kept.to(float64).mul(FACTOR)).matmul(ev);
            });
            for (const [i, name] of ['q', 'k', 'v'].entries())
              near(gradients[i] as Tensor, wanted[i] as Tensor, part, `gradient of ${name}`);
          });

    it('drops the fraction dropoutP of the weights', () => {
      const [queries, keys] = [256, 128];
      for (const dropoutP of [0.1, 0.5, 0.9]) {
        const dropped = isZero(
          attention(drawn(float32, queries, keys), device, dropoutP)[0] as Tensor,
        );
        const part = dropped.filter(Boolean).length / dropped.length;
        const deviation = Math.sqrt((dropoutP * (1 - dropoutP)) / dropped.length);
        assert.ok(Math.abs(part - dropoutP) < 5 * deviation, `${part} of ${dropoutP}`);
      }
    });

    it('preserves the mean of the result, even if nearly all weights are dropped', () => {
      const [queries, keys] = [4096, 128];
      for (const dropoutP of [0.999, 0.9999, 1e-6]) {
        const mean = flat(
          (attention(drawn(float32, queries, keys), device, dropoutP)[0] as Tensor).sum(-1).mean(),
        )[0] as number;
        const deviation = Math.sqrt(dropoutP / (1 - dropoutP) / (2 * queries * keys));
        assert.ok(Math.abs(mean - 1) < 5 * deviation + 1e-5, `${mean} with ${dropoutP}`);
      }
    });

    it('drops every weight with probability 1', () => {
      for (const dtype of room.keys())
        for (const t of attention(drawn(dtype, 40, 40), device, 1))
          assert.ok(
            flat(t).every((value) => value === 0),
            String(dtype),
          );
    });

    it('drops the same weights for every dtype and on every device', () => {
      for (const [queries, keys] of sizes) {
        const want = isZero(attention(drawn(float32, queries, keys), 'cpu', P)[0] as Tensor);
        for (const dtype of room.keys())
          assert.deepEqual(
            isZero(attention(drawn(dtype, queries, keys), device, P)[0] as Tensor),
            want,
            `${dtype}, ${queries} x ${keys}`,
          );
      }
    });

    it('drops the same weights as earlier versions for a seed', () => {
      const t = (...shape: number[]): Tensor => ones([1, 1, ...shape]);
      const [out] = attention(
        { q: t(2, 8), k: t(12, 8), v: eye(12).unsqueeze(0).unsqueeze(0), g: t(2, 12) },
        device,
        P,
      ) as [Tensor];
      const rows = isZero(out).map((dropped) => (dropped ? '.' : 'x'));
      assert.deepEqual(
        [rows.slice(0, 12).join(''), rows.slice(12).join('')],
        ['xxxxx.x.xxxx', '..x.xx.x.xx.'],
      );
    });
  });
}
