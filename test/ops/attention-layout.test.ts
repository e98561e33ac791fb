/** The memory of attention's results: the heads of a position are side by side, as in PyTorch. */
import assert from 'node:assert/strict';
import { autograd, bfloat16, float32, manualSeed, nn, rand, type Tensor } from '../../lib/index.js';
import { skipWithoutCuda } from '../skip.js';

const { scaledDotProductAttention: sdpa } = nn.functional;
const [B, H, S, D] = [2, 3, 70, 8];

/** Queries, keys and values as layers make them: views of one tensor of all heads. */
function headsOf(qkv: Tensor): [Tensor, Tensor, Tensor] {
  const heads = qkv.chunk(3, -1).map((t) => t.view([B, S, H, D]).transpose(1, 2));
  return heads as [Tensor, Tensor, Tensor];
}

for (const device of ['cpu', 'cuda'] as const)
  for (const dtype of [float32, bfloat16])
    describe(`the memory of attention of ${dtype.name} on ${device}`, () => {
      before(function () {
        if (device === 'cuda') skipWithoutCuda(this);
      });

      it('is a row of all heads for each position, which the next layer takes without a copy', () => {
        const q = rand([B, H, S, D], { device, dtype });
        const out = sdpa(q, q, q, { isCausal: true });
        assert.deepEqual(out.strides, [S * H * D, D, H * D, 1]);
        const rows = out.transpose(1, 2).reshape([B, S, H * D]);
        assert.ok(rows.isContiguous());
        assert.equal(rows.storage, out.storage);
      });

      it('of gradients is that of the queries, keys and values', () => {
        const byPosition = rand([B, S, H, D], { device, dtype }).transpose(1, 2).requiresGrad_();
        const byHead = rand([B, H, S, D], { device, dtype }).requiresGrad_();
        const [g1, g2] = autograd.grad(sdpa(byPosition, byHead, byHead).sum(), [
          byPosition,
          byHead,
        ]);
        assert.deepEqual(g1?.strides, byPosition.strides);
        assert.deepEqual(g2?.strides, byHead.strides);
      });

      it('changes no values, forward and backward', async () => {
        manualSeed(3);
        const values = rand([B, S, 3 * H * D], { device, dtype });
        const packed = values.clone().requiresGrad_();
        const apart = values.clone().requiresGrad_();
        const strided = sdpa(...headsOf(packed), { isCausal: true });
        const [q, k, v] = headsOf(apart).map((t) => t.contiguous()) as [Tensor, Tensor, Tensor];
        const dense = sdpa(q, k, v, { isCausal: true });
        assert.deepEqual(await strided.detach().read(), await dense.detach().read());
        const g = rand([B, H, S, D], { device, dtype });
        strided.backward(g);
        dense.backward(g.transpose(1, 2).contiguous().transpose(1, 2));
        assert.deepEqual(await packed.grad?.read(), await apart.grad?.read());
      });
    });
