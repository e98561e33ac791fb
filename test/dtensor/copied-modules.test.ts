/**
 * Deep copies of layers with distributed parameters.
 */
import assert from 'node:assert/strict';
import {
  CommDebugMode,
  DTensor,
  distributeModule,
  distributeTensor,
  initDeviceMesh,
  Shard,
} from '../../lib/distributed.js';
import { nn, randn } from '../../lib/index.js';
import { withRanks } from '../../lib/testing/index.js';

describe('a deep copy of a layer with distributed parameters', () => {
  it(
    'has its own local shards in the same placements, without communication',
    withRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2], { meshDimNames: ['tp'] });
      const layer = distributeModule(
        new nn.TransformerEncoderLayer(8, 2, { dimFeedforward: 16, dropout: 0, batchFirst: true }),
        mesh,
        {
          partitionFn: (name, module) => {
            if (name === 'linear1' && module instanceof nn.Linear)
              module.weight.data = distributeTensor(module.weight.detach(), mesh, [Shard(0)]);
          },
        },
      );
      const comm = new CommDebugMode();
      const encoder = comm.run(() => new nn.TransformerEncoder(layer, 2));
      assert.equal(comm.getTotalCounts(), 0);
      const originals = [...layer.parameters()];
      for (const copy of encoder.layers) {
        for (const [i, p] of [...copy.parameters()].entries()) {
          const original = originals[i] as nn.Parameter;
          assert.ok(p instanceof nn.Parameter && p instanceof DTensor);
          assert.equal(p._spec, original._spec);
          assert.notEqual(p.untypedStorage(), original.untypedStorage());
          assert.deepEqual(await p.toLocal().read(), await original.toLocal().read());
        }
      }
      const out = encoder(DTensor.fromLocal(randn([3, 4, 8]), mesh));
      assert.deepEqual(out.shape, [3, 4, 8]);
    }),
  );
});
