/**
 * Attention scores at the edges of what kernels assume: scales that are not positive, large scores,
 * large masks.
 */
import assert from 'node:assert/strict';
import {
  finfo,
  float64,
  nn,
  ones,
  randn,
  type Tensor,
  tensor,
  where,
  zeros,
} from '../../lib/index.js';
import { skipWithoutCuda } from '../skip.js';
import { flat, near, type Operands, room, withGradients } from './attention-operands.js';

const { functional: F } = nn;

for (const device of ['cpu', 'cuda'] as const) {
  describe(`attention scores at the edges of their range on ${device}`, () => {
    before(function () {
      if (device === 'cuda') skipWithoutCuda(this);
    });

    for (const [dtype, part] of room) {
      const make = (...shape: number[]): Tensor =>
        randn([1, 2, ...shape], { dtype: float64 }).to(dtype);

      for (const depth of [64, 128])
        for (const isCausal of [false, true])
          it(`are correct for negative, zero and tiny scales, of ${dtype}, depth ${depth}${isCausal ? ', causal' : ''}`, () => {
            const [queries, keys] = [70, 67];
            const operands: Operands = [make(queries, depth), make(keys, depth), make(keys, depth)];
            const g = make(queries, depth);
            const seen = isCausal
              ? ones([queries, keys]).tril().ne(0)
              : ones([queries, keys]).ne(0);
            for (const scale of [-0.125, 0, 1e-50]) {
              const got = withGradients(
                operands.map((t) => t.to(device)) as Operands,
                g.to(device),
                ([q, k, v]) => F.scaledDotProductAttention(q, k, v, { scale, isCausal }),
              );
              const exact = operands.map((t) => t.to(float64)) as Operands;
              const want = withGradients(exact, g.to(float64), ([q, k, v]) =>
                where(seen, q.matmul(k.transpose(-2, -1)).mul(scale), Number.NEGATIVE_INFINITY)
                  .softmax(-1)
                  .matmul(v),
              );
              for (const [i, name] of [
                'result',
                'gradient of q',
                'gradient of k',
                'gradient of v',
              ].entries())
                near(got[i] as Tensor, want[i] as Tensor, part, `${name}, scale ${scale}`);
            }
          });

      it(`keep the sum of earlier keys while the running maximum does not change, of ${dtype}`, () => {
        const keys = 8192;
        const [k, v] = [
          zeros([1, 1, keys, 64], { dtype }),
          randn([1, 1, keys, 64], { dtype: float64 }).to(dtype),
        ];
        // every score is 161 * 1.3 / 8, which no tile rounds to a number of 24 bits
        k.select(-1, 0).fill_(161);
        const q = zeros([1, 1, 8, 64], { dtype });
        q.select(-1, 0).fill_(1.3);
        const out = F.scaledDotProductAttention(q.to(device), k.to(device), v.to(device));
        near(
          out,
          v.to(float64).mean(-2, { keepdim: true }).expand([1, 1, 8, 64]),
          dtype === float64 ? 1e-12 : part / 4,
          'mean of the values',
        );
      });

      it(`treat a mask of the largest finite number as a number, of ${dtype}`, () => {
        const [q, k, v] = [make(5, 64), make(40, 64), make(40, 64)];
        const attnMask = zeros([5, 40], { dtype });
        attnMask.select(-1, 3).fill_(finfo(dtype).max);
        const out = F.scaledDotProductAttention(q.to(device), k.to(device), v.to(device), {
          attnMask: attnMask.to(device),
        });
        near(
          out,
          v.to(float64).narrow(-2, 3, 1).expand([1, 2, 5, 64]),
          part,
          'the value of the key that is added to',
        );
      });
    }

    it('give a row of one key the value of that key for every scale', () => {
      for (const scale of [-3, 0, 3]) {
        const out = F.scaledDotProductAttention(
          ones([1, 1, 2, 8], { device }),
          ones([1, 1, 1, 8], { device }),
          tensor([[[[1, 2]]]], { device }),
          { scale },
        );
        assert.deepEqual(flat(out.cpu()), [1, 2, 1, 2]);
      }
    });
  });
}
