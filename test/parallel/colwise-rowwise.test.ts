/**
 * ColwiseParallel and RowwiseParallel: placements of parameters, results and communication.
 */
import assert from 'node:assert/strict';
import {
  ColwiseParallel,
  distributeTensor,
  initDeviceMesh,
  ParallelStyle,
  parallelizeModule,
  Replicate,
  RowwiseParallel,
  SequenceParallel,
  Shard,
} from '../../lib/distributed.js';
import {
  float64,
  int64,
  manualSeed,
  nn,
  ones,
  randint,
  randn,
  ShardingError,
  type Tensor,
} from '../../lib/index.js';
import { withRanks } from '../../lib/testing/index.js';
import { assertAlike, assertClose, commCounts, placementsOf } from './compare.js';

const RANKS = 3;
const dtype = float64;
const meshOf = () => initDeviceMesh('cpu', [RANKS], { meshDimNames: ['tp'] });
const linears = (inFeatures: number, outFeatures: number): [nn.Linear, nn.Linear] => {
  const make = (): nn.Linear => {
    manualSeed(7);
    return new nn.Linear(inFeatures, outFeatures, { dtype });
  };
  return [make(), make()];
};

describe('ColwiseParallel and RowwiseParallel', () => {
  it('are created with or without new, and are instances of their class', () => {
    for (const style of [ColwiseParallel(), new ColwiseParallel({ useLocalOutput: false })]) {
      assert.ok(style instanceof ColwiseParallel);
      assert.ok(style instanceof ParallelStyle);
      assert.ok(!(style instanceof RowwiseParallel));
    }
    assert.equal(SequenceParallel().constructor.name, 'SequenceParallel');
  });

  it(
    'ColwiseParallel shards a Linear along its outputs, also unevenly',
    withRanks(RANKS, async (rank) => {
      const mesh = meshOf();
      const [layer, alone] = linears(6, 10);
      const { weight } = layer;
      const x = randn([2, 6], { dtype, requiresGrad: true });
      const [whole, other] = [alone(x), x.detach().requiresGrad_()];
      whole.square().sum().backward();
      assert.equal(parallelizeModule(layer, mesh, ColwiseParallel()), layer);
      assert.equal(layer.weight, weight);
      assert.deepEqual(
        [placementsOf(layer.weight), placementsOf(layer.bias)],
        ['[Shard(0)]', '[Shard(0)]'],
      );
      let out = null as Tensor | null;
      assert.deepEqual(
        commCounts(() => {
          out = layer(other);
        }),
        {},
      );
      const local = out as Tensor | null as Tensor;
      assert.equal(placementsOf(local), 'plain');
      await assertClose(local, whole.detach().split(4, 1)[rank] as Tensor, 'the local result');
      assert.deepEqual(
        commCounts(() => local.square().sum().backward()),
        { allReduce: 1 },
      );
      assert.deepEqual(placementsOf(layer.weight.grad), '[Shard(0)]');
      await assertAlike(layer, alone, 'gradients');
      await assertClose(other.grad as Tensor, x.grad as Tensor, 'the gradient of the input');
    }),
  );

  it(
    'RowwiseParallel shards a Linear along its inputs and all-reduces or reduce-scatters the result',
    withRanks(RANKS, async (rank) => {
      const mesh = meshOf();
      const [layer, alone] = linears(10, 6);
      const x = randn([9, 10], { dtype });
      const mine = x.split(4, 1)[rank] as Tensor;
      const whole = alone(x);
      whole.square().sum().backward();
      parallelizeModule(layer, mesh, RowwiseParallel());
      assert.deepEqual(
        [placementsOf(layer.weight), placementsOf(layer.bias)],
        ['[Shard(1)]', '[Replicate()]'],
      );
      assert.deepEqual(
        commCounts(() => layer(mine)),
        { allReduce: 1 },
      );
      const out = layer(mine);
      await assertClose(out, whole, 'the result');
      assert.deepEqual(
        commCounts(() => out.square().sum().backward()),
        {},
      );
      await assertAlike(layer, alone, 'gradients');
      const [scattered] = linears(10, 6);
      parallelizeModule(
        scattered,
        mesh,
        RowwiseParallel({ outputLayouts: Shard(0), useLocalOutput: false }),
      );
      let result = null as unknown as Tensor;
      assert.deepEqual(
        commCounts(() => {
          result = scattered(mine);
        }),
        { reduceScatter: 1 },
      );
      assert.equal(placementsOf(result), '[Shard(0)]');
      await assertClose(result, whole, 'the scattered result');
    }),
  );

  it(
    'redistribute plain inputs by inputLayouts, and take distributed inputs',
    withRanks(RANKS, async (rank) => {
      const mesh = meshOf();
      const [layer, alone] = linears(6, 9);
      const x = randn([6, 6], { dtype });
      const whole = alone(x);
      parallelizeModule(
        layer,
        mesh,
        ColwiseParallel({
          inputLayouts: Shard(0),
          outputLayouts: Replicate(),
          useLocalOutput: false,
        }),
      );
      const rows = x.narrow(0, 2 * rank, 2);
      assert.deepEqual(
        commCounts(() => layer(rows)),
        { allGather: 2 },
      );
      const out = layer(rows);
      assert.equal(placementsOf(out), '[Replicate()]');
      await assertClose(out, whole, 'of a plain part');
      await assertClose(
        layer(distributeTensor(x, mesh, [Shard(0)])),
        whole,
        'of a distributed input',
      );
    }),
  );

  for (const [name, style, placement, counts] of [
    ['column', ColwiseParallel({ outputLayouts: Replicate() }), '[Shard(1)]', { allGather: 1 }],
    ['row', RowwiseParallel(), '[Shard(0)]', { allReduce: 1 }],
  ] as const) {
    it(
      `shard an Embedding ${name}-wise`,
      withRanks(RANKS, async () => {
        const mesh = meshOf();
        const make = (): nn.Embedding => {
          manualSeed(3);
          return new nn.Embedding(10, 7, { dtype, paddingIdx: 4 });
        };
        const [layer, alone] = [make(), make()];
        const ids = randint(0, 10, [2, 5], { dtype: int64 });
        const scale = randn([2, 5, 7], { dtype });
        const whole = alone(ids);
        whole.mul(scale).sum().backward();
        parallelizeModule(layer, mesh, style);
        assert.equal(placementsOf(layer.weight), placement);
        let out = null as unknown as Tensor;
        assert.deepEqual(
          commCounts(() => {
            out = layer(ids);
          }),
          counts,
        );
        await assertClose(out, whole, 'the result', 0);
        assert.deepEqual(
          commCounts(() => out.mul(scale).sum().backward()),
          {},
        );
        await assertAlike(layer, alone, 'gradients');
      }),
    );
  }

  it('refuse a layout that is not a placement, and an unknown option', () => {
    assert.throws(
      () => ColwiseParallel({ outputLayouts: 'Shard(0)' } as never),
      /ColwiseParallel: expected outputLayouts to be a placement/,
    );
    assert.throws(
      () => RowwiseParallel({ outputLayout: Shard(0) } as never),
      /there is no option "outputLayout"/,
    );
  });

  it(
    'refuse other modules, and name the layers that can be parallelized',
    withRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const attention = new nn.MultiheadAttention(4, 2);
      assert.throws(
        () => parallelizeModule(attention, mesh, ColwiseParallel()),
        (error) =>
          error instanceof ShardingError &&
          /ColwiseParallel: expected Linear or Embedding, got MultiheadAttention\. Below it there is "out_proj": name that in the plan\. This style does not shard its own parameters/.test(
            error.message,
          ),
      );
      assert.throws(
        () => parallelizeModule(new nn.ReLU(), mesh, RowwiseParallel()),
        /expected Linear or Embedding, got ReLU\.$/,
      );
      const model = new nn.Sequential(new nn.Linear(4, 6), new nn.ReLU());
      assert.throws(
        () => parallelizeModule(model, mesh, { 1: ColwiseParallel() }),
        /ColwiseParallel: expected Linear or Embedding, got ReLU at "1"\.$/,
      );
      const layer = parallelizeModule(new nn.Linear(2, 2), mesh, ColwiseParallel());
      assert.throws(
        () => layer('x' as never),
        /ColwiseParallel: expected the input of Linear to be a tensor, plain or distributed, got string/,
      );
    }),
  );

  it(
    'refuse an input that does not fit inputLayouts, with the module and advice',
    withRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const model = parallelizeModule(
        new nn.Sequential(new nn.Identity(), new nn.Linear(6, 4)),
        mesh,
        { 1: RowwiseParallel() },
      );
      const whole =
        /^RowwiseParallel: expected the input of Linear at "1" .* 3 of 6 features, got float32\[1, 6\]\. Each rank has all features: .*inputLayouts: Replicate\(\)/;
      assert.throws(
        () => model(ones([1, 6])),
        (error) => error instanceof ShardingError && whole.test(error.message),
      );
      assert.throws(
        () => model(ones([1, 5])),
        /got float32\[1, 5\]\. inputLayouts is the placement of a plain input, here Shard\(-1\)/,
      );
    }),
  );
});
