/** Ops that compute in float32 by themselves: mixed precision makes no float32 copy of operands. */
import assert from 'node:assert/strict';
import { FakeTensorMode } from '../../lib/compile/index.js';
import {
  amp,
  bfloat16,
  crossEntropy,
  float16,
  float32,
  randint,
  randn,
  type Tensor,
} from '../../lib/index.js';

const SHAPE = [64, 512] as const;

/** The dtypes and most memory of a loss of low logits under mixed precision on a fake GPU. */
function measured(dtype: typeof bfloat16, loss: (logits: Tensor, target: Tensor) => Tensor) {
  const mode = new FakeTensorMode();
  return mode.run(() => {
    const logits = randn(SHAPE, { device: 'cuda', dtype }).requiresGrad_();
    const target = randint(0, SHAPE[1], [SHAPE[0]], { device: 'cuda' });
    const value = amp.autocast({ deviceType: 'cuda', dtype }, () => loss(logits, target));
    value.sum().backward();
    const peak = mode.memory.stats().peak.total / logits.nbytes;
    return { dtypes: [value.dtype, logits.grad?.dtype], peak };
  });
}

describe('mixed precision makes no copy of logits', () => {
  for (const dtype of [bfloat16, float16])
    for (const reduction of ['mean', 'sum', 'none'] as const)
      it(`of ${dtype.name} for a cross entropy with reduction ${reduction}`, () => {
        const { dtypes, peak } = measured(dtype, (x, t) => crossEntropy(x, t, { reduction }));
        assert.deepEqual(dtypes, [float32, dtype]);
        assert.ok(peak < 2.1, `expected logits and their gradient, got ${peak} times the logits`);
      });

  it('and converts those of a cross entropy of probabilities', () => {
    const { dtypes } = measured(bfloat16, (x) => crossEntropy(x, x.detach().softmax(1)));
    assert.deepEqual(dtypes, [float32, bfloat16]);
  });
});
