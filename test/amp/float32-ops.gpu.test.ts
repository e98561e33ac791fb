/** On a GPU: losses of 16-bit logits under mixed precision are those of their float32 copies. */
import assert from 'node:assert/strict';
import {
  allclose,
  amp,
  bfloat16,
  crossEntropy,
  float16,
  float32,
  manualSeed,
  rand,
  randint,
  randn,
  type Tensor,
} from '../../lib/index.js';
import { skipWithoutCuda } from '../skip.js';

describe('cross entropy under mixed precision on a GPU', () => {
  before(function () {
    skipWithoutCuda(this);
  });

  for (const dtype of [bfloat16, float16])
    for (const options of [{}, { reduction: 'sum' }, { labelSmoothing: 0.1 }] as const)
      for (const weighted of [false, true])
        it(`of ${dtype.name} is that of a float32 copy: ${JSON.stringify({ ...options, weighted })}`, () => {
          manualSeed(1);
          const logits = randn([300, 5000], { device: 'cuda', dtype });
          const target = randint(0, 5000, [300], { device: 'cuda' });
          const weight = weighted ? rand([5000], { device: 'cuda' }) : null;
          const run = (convert: (x: Tensor) => Tensor): { loss: Tensor; grad: Tensor } => {
            const x = logits.detach().requiresGrad_();
            const loss = amp.autocast({ deviceType: 'cuda', dtype }, () =>
              crossEntropy(convert(x), target, weight, options),
            );
            loss.backward();
            assert.deepEqual([loss.dtype, x.grad?.dtype], [float32, dtype]);
            return { loss, grad: (x.grad as Tensor).float() };
          };
          const [direct, copied] = [run((x) => x), run((x) => x.float())];
          // rows are summed in groups of another size, so a value may round to its neighbour
          assert.ok(allclose(direct.loss, copied.loss, { rtol: 1e-5, atol: 0 }));
          assert.ok(allclose(direct.grad, copied.grad, { rtol: 2 ** -7, atol: 1e-7 }));
        });
});
