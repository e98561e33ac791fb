/**
 * Local shards with other strides than the whole tensor suggests.
 */
import { DTensor, initDeviceMesh, Replicate, Shard } from '../../lib/distributed.js';
import { float64, layerNorm, manualSeed, ones, randn } from '../../lib/index.js';
import { withRanks } from '../../lib/testing/index.js';
import { assertClose } from '../parallel/compare.js';

describe('local shards that are not contiguous', () => {
  it(
    'are copied by contiguous() and for kernels of dense rows, although the whole tensor is contiguous',
    withRanks(2, async (rank) => {
      manualSeed(1);
      const mesh = initDeviceMesh('cpu', [2]);
      const whole = randn([3, 6, 4], { dtype: float64 });
      const t = DTensor.fromLocal(whole.narrow(1, 3 * rank, 3), mesh, [Shard(1)]);
      await assertClose(t.contiguous(), whole, 'contiguous()', 0);
      const weight = DTensor.fromLocal(ones([4], { dtype: float64 }), mesh, [Replicate()]);
      await assertClose(layerNorm(t, [4], weight), layerNorm(whole, [4]), 'layer norm');
    }),
  );
});
