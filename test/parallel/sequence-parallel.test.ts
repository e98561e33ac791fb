/**
 * SequenceParallel: parameters, shards of the sequence, and gradients.
 */
import assert from 'node:assert/strict';
import {
  DTensor,
  initDeviceMesh,
  parallelizeModule,
  SequenceParallel,
} from '../../lib/distributed.js';
import { float64, manualSeed, nn, randn, type Tensor } from '../../lib/index.js';
import { withRanks } from '../../lib/testing/index.js';
import { assertAlike, assertClose, commCounts, placementsOf } from './compare.js';

const RANKS = 3;
const dtype = float64;
const meshOf = () => initDeviceMesh('cpu', [RANKS], { meshDimNames: ['tp'] });

describe('SequenceParallel', () => {
  it(
    'replicates parameters, shards the sequence, and reduces gradients of parameters',
    withRanks(RANKS, async (rank) => {
      const mesh = meshOf();
      manualSeed(5);
      const [layer, alone] = [new nn.LayerNorm(4, { dtype }), new nn.LayerNorm(4, { dtype })];
      const x = randn([2, 6, 4], { dtype });
      const scale = randn([2, 6, 4], { dtype });
      const whole = alone(x);
      whole.mul(scale).sum().backward();
      const { weight } = layer;
      assert.deepEqual(
        commCounts(() => parallelizeModule(layer, mesh, SequenceParallel())),
        { broadcast: 2 },
      );
      assert.equal(layer.weight, weight);
      assert.equal(placementsOf(layer.weight), '[Replicate()]');
      const out = layer(x.narrow(1, 2 * rank, 2));
      assert.deepEqual([placementsOf(out), out.shape], ['[Shard(1)]', [2, 6, 4]]);
      await assertClose(out, whole, 'the result');
      out
        .toLocal()
        .mul(scale.narrow(1, 2 * rank, 2))
        .sum()
        .backward();
      assert.equal(placementsOf((layer.weight as Tensor).grad), '[Replicate()]');
      await assertAlike(layer, alone, 'gradients');
      await assertClose(layer(DTensor.fromLocal(x, mesh)), whole, 'of a distributed input');
      const drop = parallelizeModule(
        new nn.Dropout(0),
        mesh,
        SequenceParallel({ sequenceDim: 0, useLocalOutput: true }),
      );
      assert.deepEqual([placementsOf(drop(x)), drop(x).shape], ['plain', [2, 6, 4]]);
    }),
  );

  it('refuses a sequence dim that is not an integer', () => {
    assert.throws(
      () => SequenceParallel({ sequenceDim: 0.5 }),
      /SequenceParallel: expected sequenceDim/,
    );
  });
});
