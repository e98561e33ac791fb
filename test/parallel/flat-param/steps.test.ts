/** Clipping, accumulation, dtypes, recomputation and errors of flat parameters in a step. */
import assert from 'node:assert/strict';
import {
  checkpointWrapper,
  FullyShardedDataParallel,
  MixedPrecision,
} from '../../../lib/distributed.js';
import {
  bfloat16,
  float16,
  float32,
  float64,
  nn,
  noGrad,
  optim,
  randn,
  type Tensor,
  zeros,
} from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import { commCounts } from '../compare.js';
import {
  assertClose,
  batchOf,
  Model,
  makeModel,
  oneDevice,
  step,
  type Values,
  valuesOf,
  wrap,
} from './models.js';

const both = [false, true];

describe('a step of a FullyShardedDataParallel', () => {
  for (const useOrigParams of both) {
    for (const normType of [2, 1, Number.POSITIVE_INFINITY])
      it(
        `clips by the norm ${normType} over all ranks, with useOrigParams: ${useOrigParams}`,
        withRanks(3, async (rank) => {
          const plain = makeModel(Model);
          plain(batchOf(0, 0, 1))
            .square()
            .mean()
            .backward();
          const expected = nn.utils.clipGradNorm_(plain.parameters(), 0.1, normType);
          const model = wrap(makeModel(Model), { useOrigParams }) as FullyShardedDataParallel;
          model(batchOf(0, rank, 3))
            .square()
            .mean()
            .backward();
          const norm = model.clipGradNorm_(0.1, normType);
          const [a, b] = [await norm.itemAsync(), await expected.itemAsync()];
          assert.ok(Math.abs(a - b) < 1e-9, `${a}, expected ${b}`);
          const again = await model.clipGradNorm_(1, normType).itemAsync();
          assert.ok(Math.abs(again - 0.1) < 1e-5, String(again));
        }),
      );

    it(
      `accumulates without reducing in noSync, with useOrigParams: ${useOrigParams}`,
      withRanks(2, async (rank) => {
        const expected = await accumulated(makeModel(Model), (i) => batchOf(i, 0, 1));
        const model = wrap(makeModel(Model), { useOrigParams }) as FullyShardedDataParallel;
        const run = (i: number): void =>
          model(batchOf(i, rank, 2))
            .square()
            .mean()
            .backward();
        const inside = commCounts(() => model.noSync(() => run(0)));
        assert.equal(inside['reduceScatter'] ?? 0, 0);
        assert.ok([...model.parameters()].every(({ grad }) => grad === null));
        const outside = commCounts(() => run(1));
        assert.equal(outside['reduceScatter'], 3);
        await assertStepped(model, expected);
      }),
    );

    it(
      `adds gradients of several backward passes, with useOrigParams: ${useOrigParams}`,
      withRanks(2, async (rank) => {
        const expected = await accumulated(makeModel(Model), (i) => batchOf(i, 0, 1));
        const model = wrap(makeModel(Model), { useOrigParams });
        for (const i of [0, 1])
          model(batchOf(i, rank, 2))
            .square()
            .mean()
            .backward();
        await assertStepped(model, expected);
      }),
    );

    it(
      `trains on after an error in forward, with useOrigParams: ${useOrigParams}`,
      withRanks(2, async (rank) => {
        const expected = await oneDevice(Model, 3);
        const inner = makeModel(Model);
        const model = wrap(inner, { useOrigParams });
        const adam = new optim.AdamW(model.parameters(), { lr: 0.01 });
        step(model, adam, batchOf(0, rank, 2));
        const hook = inner.second.registerForwardHook(() => {
          throw new Error('in forward');
        });
        assert.throws(() => model(batchOf(1, rank, 2)), /in forward/);
        hook.remove();
        for (const i of [1, 2]) step(model, adam, batchOf(i, rank, 2));
        assertClose(await valuesOf(Object.entries(model.stateDict())), expected);
      }),
    );

    it(
      `computes in another dtype than that of its shards, with useOrigParams: ${useOrigParams}`,
      withRanks(2, async (rank) => {
        const dtypes: string[] = [];
        const inner = makeModel(Model).float();
        inner.second.registerForwardPreHook((module, [x]) => {
          dtypes.push(x.dtype.name, (module.weight as Tensor).dtype.name);
        });
        const mixedPrecision = new MixedPrecision({ paramDtype: bfloat16, reduceDtype: float32 });
        const model = wrap(inner, { useOrigParams, mixedPrecision });
        const result = model(batchOf(0, rank, 2).float());
        assert.equal(result.dtype, bfloat16);
        result.float().square().mean().backward();
        assert.deepEqual(dtypes, ['bfloat16', 'bfloat16']);
        for (const p of model.parameters()) {
          assert.equal(p.dtype, float32);
          assert.ok(p.grad === null || p.grad.dtype === float32);
        }
        const plain = makeModel(Model).float();
        plain(batchOf(0, 0, 1).float())
          .square()
          .mean()
          .backward();
        const expected = await nn.utils
          .getTotalNorm([...plain.parameters()].flatMap(({ grad }) => grad ?? []))
          .itemAsync();
        const norm = await (model as FullyShardedDataParallel).clipGradNorm_(1).itemAsync();
        assert.ok(Math.abs(norm - expected) < 0.03 * expected, `${norm}, expected ${expected}`);
      }),
    );

    it(
      `follows module.to before the first forward, with useOrigParams: ${useOrigParams}`,
      withRanks(2, async (rank) => {
        const model = wrap(makeModel(Model).float(), { useOrigParams });
        model.double();
        const adam = new optim.AdamW(model.parameters(), { lr: 0.01 });
        for (let i = 0; i < 2; i++) step(model, adam, batchOf(i, rank, 2));
        for (const t of Object.values(model.stateDict())) assert.equal(t.dtype, float64);
      }),
    );
  }

  it(
    'frees whole parameters after forward, and gathers again for backward',
    withRanks(2, (rank) => {
      const model = wrap(makeModel(Model));
      let loss: Tensor | null = null;
      const forward = commCounts(() => {
        loss = model(batchOf(0, rank, 2))
          .square()
          .mean();
      });
      assert.equal(forward['allGather'], 3);
      const backward = commCounts(() => (loss as unknown as Tensor).backward());
      assert.equal(backward['allGather'], 2); // the root keeps its own
      assert.equal(backward['reduceScatter'], 3);
    }),
  );

  for (const useOrigParams of both)
    it(
      `recomputes activations in backward, with useOrigParams: ${useOrigParams}`,
      withRanks(2, async (rank) => {
        const expected = await oneDevice(Model, 3);
        const inner = makeModel(Model);
        inner.first = checkpointWrapper(inner.first);
        inner.second = checkpointWrapper(inner.second);
        const model = wrap(inner, { useOrigParams });
        const adam = new optim.AdamW(model.parameters(), { lr: 0.01 });
        for (let i = 0; i < 3; i++) step(model, adam, batchOf(i, rank, 2));
        assertClose(await valuesOf(Object.entries(model.stateDict())), expected);
      }),
    );

  it(
    'uses its shard itself where nothing is divided, and notices that it was changed',
    withRanks(1, () => {
      const linear = new nn.Linear(64, 64);
      const model = new FullyShardedDataParallel(linear, { shardingStrategy: 'NO_SHARD' });
      const storages: unknown[] = [];
      linear.registerForwardPreHook((module) => {
        storages.push((module.weight as Tensor).untypedStorage());
      });
      const x = randn([1, 64], { requiresGrad: true });
      const loss = model(x).sum();
      assert.equal(storages[0], (model._flatParam as Tensor).untypedStorage());
      (model._flatParam as Tensor).detach().add_(1);
      assert.throws(() => loss.backward(), { code: 'ERR_IN_PLACE' });
      model(x).sum().backward();
    }),
  );

  it(
    'runs several times in a step',
    withRanks(2, async (rank) => {
      const expected = await oneDevice(Repeated, 3);
      const inner = makeModel(Repeated);
      inner.block = new FullyShardedDataParallel(inner.block);
      const model = new FullyShardedDataParallel(inner);
      const adam = new optim.AdamW(model.parameters(), { lr: 0.01 });
      for (let i = 0; i < 3; i++) step(model, adam, batchOf(i, rank, 2));
      assertClose(await valuesOf(Object.entries(model.stateDict())), expected);
    }),
  );

  it(
    'computes without gradients, and keeps nothing',
    withRanks(2, async (rank) => {
      const plain = makeModel(Model).eval();
      const inner = makeModel(Model);
      const model = wrap(inner, { shardingStrategy: 'SHARD_GRAD_OP' }).eval();
      const weights: Tensor[] = [];
      inner.second.registerForwardPreHook(({ weight }) => {
        weights.push(weight);
      });
      const x = batchOf(0, rank, 2);
      const [actual, expected] = noGrad(() => [model(x), plain(x)]) as [Tensor, Tensor];
      assert.deepEqual([...(await actual.read())], [...(await expected.read())]);
      assert.equal((weights[0] as Tensor).untypedStorage().size(), 0);
    }),
  );

  it(
    'leaves ignored modules and parameters as they are',
    withRanks(2, () => {
      const inner = makeModel(Model);
      const bias = inner.second.bias as nn.Parameter;
      const ignoredStates = [inner.first, bias];
      const model = new FullyShardedDataParallel(inner, { ignoredStates });
      const names = [...model.namedParameters()].map(([name]) => name);
      assert.equal(names.length, 1 + 6 + 1);
      assert.equal(inner.second.bias, bias);
    }),
  );

  it(
    'converts buffers to the dtype of mixed precision',
    withRanks(1, () => {
      const inner = new nn.Linear(2, 2);
      inner.registerBuffer('scale', zeros([2]));
      const mixedPrecision = new MixedPrecision({ bufferDtype: float16 });
      const model = new FullyShardedDataParallel(inner, { mixedPrecision });
      model(randn([1, 2]));
      assert.equal(inner.getBuffer('scale').dtype, float16);
    }),
  );
});

class Repeated extends nn.Module {
  block: nn.Module = new nn.Linear(6, 6);
  forward(x: Tensor): Tensor {
    return this.block(this.block(x).tanh()).tanh();
  }
}

/** The parameters after a step with the gradients of two batches. */
async function accumulated(model: nn.Module, batch: (i: number) => Tensor): Promise<Values> {
  for (const i of [0, 1]) model(batch(i)).square().mean().backward();
  new optim.SGD(model.parameters(), { lr: 0.1 }).step();
  return valuesOf(model.namedParameters());
}

async function assertStepped(model: nn.Module, expected: Values): Promise<void> {
  new optim.SGD(model.parameters(), { lr: 0.1 }).step();
  assertClose(await valuesOf(Object.entries(model.stateDict())), expected);
}
