/** `keepLowPrecisionGrads`: the dtype in which optimizers find gradients. */
import assert from 'node:assert/strict';
import {
  CPUOffload,
  FlatParamHandle,
  type FSDPOptions,
  type FullyShardedDataParallel,
  MixedPrecision,
} from '../../../lib/distributed.js';
import { nn, ones, optim, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import { batchOf, Model, makeModel, valuesOf, wrap } from './models.js';

const RANKS = 2;

function sharded(keepLowPrecisionGrads: boolean, options: FSDPOptions): nn.Module {
  const mixedPrecision = new MixedPrecision({
    paramDtype: 'bfloat16',
    reduceDtype: 'float32',
    keepLowPrecisionGrads,
  });
  return wrap(makeModel(Model).float(), { mixedPrecision, ...options });
}

function backward(model: nn.Module, pass: number, rank: number): void {
  model(batchOf(pass, rank, RANKS).float())
    .float()
    .square()
    .sum()
    .backward();
}

/** The gradients by name, without those that are not on this rank. */
function gradsOf(model: nn.AnyModule): [string, Tensor][] {
  return [...model.namedParameters()].flatMap(([name, { grad }]) =>
    grad === null ? [] : [[name, grad.clone()]],
  );
}

const mapped = (
  grads: readonly [string, Tensor][],
  fn: (grad: Tensor, i: number) => Tensor,
): [string, Tensor][] => grads.map(([name, grad], i) => [name, fn(grad, i)]);

const cases: Record<string, FSDPOptions> = {
  FULL_SHARD: {},
  NO_SHARD: { shardingStrategy: 'NO_SHARD' },
  useOrigParams: { useOrigParams: true },
  'offload to the CPU': { cpuOffload: new CPUOffload({ offloadParams: true }) },
};

describe('gradients of flat parameters with keepLowPrecisionGrads', () => {
  for (const [name, options] of Object.entries(cases)) {
    it(
      `are the reduced ones in the dtype of compute, and their sums: ${name}`,
      withRanks(RANKS, async (rank) => {
        const [low, full] = [sharded(true, options), sharded(false, options)];
        const seen = [0, 1].map((pass) => {
          for (const model of [low, full]) backward(model, pass, rank);
          const grads = { kept: gradsOf(low), whole: gradsOf(full) };
          full.zeroGrad();
          return grads;
        });
        const [first, second] = seen as [(typeof seen)[0], (typeof seen)[0]];
        const dtypes = ({ kept, whole }: typeof first): string[] =>
          [kept, whole].map((grads) => grads.map(([, { dtype }]) => dtype.name).join(' '));
        const count = first.whole.length;
        assert.ok(count > 0);
        for (const grads of seen)
          assert.deepEqual(
            dtypes(grads),
            ['bfloat16', 'float32'].map((dtype) => Array(count).fill(dtype).join(' ')),
          );
        const rounded = mapped(first.whole, (grad) => grad.bfloat16());
        assert.deepEqual(await valuesOf(first.kept), await valuesOf(rounded));
        const sums = mapped(second.whole, (grad, i) =>
          (rounded[i] as [string, Tensor])[1].float().add(grad).bfloat16(),
        );
        assert.deepEqual(await valuesOf(second.kept), await valuesOf(sums));
      }),
    );

    it(
      `are clipped, stepped with and reduced after noSync: ${name}`,
      withRanks(RANKS, async (rank) => {
        const model = sharded(true, options) as FullyShardedDataParallel;
        const adam = new optim.AdamW(model.parameters(), { lr: 0.01 });
        for (let step = 0; step < 2; step++) {
          model.noSync(() => backward(model, step, rank));
          backward(model, step + 1, rank);
          assert.ok((await model.clipGradNorm_(1).itemAsync()) > 0);
          for (const [, grad] of gradsOf(model)) assert.equal(grad.dtype.name, 'bfloat16');
          adam.step();
          adam.zeroGrad();
        }
        for (const p of model.parameters()) assert.equal(p.dtype.name, 'float32');
      }),
    );
  }
});

describe('a flat parameter without ranks', () => {
  it('has gradients in mpParamDtype with keepLowPrecisionGrads', () => {
    for (const [keepLowPrecisionGrads, expected] of [
      [true, 'bfloat16'],
      [false, 'float32'],
    ] as const) {
      const linear = new nn.Linear(2, 2);
      const handle = new FlatParamHandle([...linear.parameters()], linear, {
        mpParamDtype: 'bfloat16',
        keepLowPrecisionGrads,
        fsdpExtension: null,
      });
      assert.equal(handle.keepLowPrecisionGrads, keepLowPrecisionGrads);
      linear(ones([1, 2]))
        .sum()
        .backward();
      assert.equal(handle.flatParam.grad?.dtype.name, expected);
    }
  });

  it('refuses extensions, and flags of another kind', () => {
    for (const options of [{ fsdpExtension: {} }, { keepLowPrecisionGrads: 1 }]) {
      const linear = new nn.Linear(2, 2);
      assert.throws(() => new FlatParamHandle([...linear.parameters()], linear, options as never), {
        code: 'ERR_ARGUMENT',
      });
    }
    assert.throws(() => new MixedPrecision({ keepLowPrecisionGrads: 'yes' as never }), {
      code: 'ERR_ARGUMENT',
    });
  });
});
