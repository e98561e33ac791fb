/** Lazy segments on a GPU: the results of uncompiled calls, in order with streams and events. */
import assert from 'node:assert/strict';
import {
  compile,
  cuda,
  graphBreak,
  manualSeed,
  nn,
  ones,
  randn,
  type Tensor,
} from '../../../lib/index.js';
import { skipWithoutCuda } from '../../skip.js';

describe('lazy segments on a GPU', () => {
  before(function () {
    skipWithoutCuda(this);
  });

  for (const backend of ['eager', 'aot_eager', 'aot_eager_decomp_partition'] as const)
    it(`train a model as uncompiled calls do with ${backend}`, () => {
      const losses = (wrap: (step: (x: Tensor) => number) => (x: Tensor) => number): number[] => {
        manualSeed(5);
        const model = new nn.Sequential(
          new nn.Linear(16, 16),
          new nn.Dropout(0.25),
          new nn.LayerNorm(16),
        ).to('cuda');
        const step = wrap((x) => {
          graphBreak();
          const y = model.forward(x);
          const loss = y.sub(y.mean()).square().mean();
          loss.backward();
          for (const p of model.parameters()) p.data.sub_((p.grad as Tensor).mul(0.1));
          model.zeroGrad();
          return loss.item();
        });
        return [1, 2, 3, 4].map((k) => step(randn([8, 16], { device: 'cuda' }).mul(k)));
      };
      const expected = losses((step) => step);
      losses((step) => compile(step, { backend })).forEach((loss, i) => {
        assert.ok(Math.abs(loss - (expected[i] as number)) <= 1e-5, `step ${i}`);
      });
    });

  it('run before work on another stream that waits for them', () => {
    const side = new cuda.Stream();
    const fn = compile((x: Tensor) => {
      graphBreak();
      const y = x.mul(2).add(1);
      const ready = new cuda.Event();
      ready.record();
      return cuda.stream(side, () => {
        side.waitEvent(ready);
        return y.mul(3);
      });
    });
    for (let i = 0; i < 3; i++) {
      const x = ones([1 << 20], { device: 'cuda' });
      const y = fn(x);
      side.synchronize();
      assert.equal(y.sum().item(), 9 * (1 << 20));
    }
  });
});
