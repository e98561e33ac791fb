/** The methods of sharded modules: unshard, prefetch, and what backward reduces and gathers. */
import assert from 'node:assert/strict';
import {
  CommDebugMode,
  DTensor,
  fullyShard,
  initDeviceMesh,
  MixedPrecisionPolicy,
} from '../../../lib/distributed.js';
import {
  crossEntropy,
  float16,
  float32,
  int64,
  nn,
  randint,
  ShardingError,
  type Tensor,
} from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import {
  adamOf,
  assertClose,
  batchOf,
  isSharded,
  lossOf,
  type Model,
  newModel,
  partOf,
  sharded,
  trained,
  trainedAlone,
  valuesOf,
} from './model.js';

type Loss = (model: Model, x: Tensor) => Tensor;

/** A loss that leaves out the last block. */
const shortLossOf: Loss = (model, x) => model.second(model.first(x)).square().mean();

describe('FSDPModule', () => {
  it(
    'unshard() gives the module whole parameters until reshard()',
    withRanks(2, async () => {
      const model = sharded(newModel());
      const before = await valuesOf(model);
      assert.equal(model.first.unshard(), null);
      assert.ok(!(model.first.up.weight instanceof DTensor));
      const whole = await model.first.up.weight.detach().reshape([-1]).read();
      assert.deepEqual([...whole], before.get('first.up.weight'));
      model.first.reshard();
      assert.ok(isSharded(model));
    }),
  );

  it(
    'unshard({ asyncOp: true }) starts the gather, and wait() completes it',
    withRanks(2, () => {
      const model = sharded(newModel());
      const handle = model.first.unshard({ asyncOp: true });
      assert.ok(isSharded(model));
      handle?.wait();
      assert.ok(!(model.first.up.weight instanceof DTensor));
      model.first.reshard();
    }),
  );

  it(
    'gathers ahead the modules that the program names',
    withRanks(2, async (rank) => {
      const expected = await trainedAlone(3);
      const model = sharded(newModel());
      model.setModulesToForwardPrefetch([model.first, model.third]);
      model.third.setModulesToBackwardPrefetch([model.first]);
      assertClose(await trained(model, rank, 2, 3), expected);
      assert.throws(() => model.setModulesToForwardPrefetch([model.second]), ShardingError);
    }),
  );

  it(
    'has methods that are no members of the module',
    withRanks(1, () => {
      const names = Object.keys(fullyShard(new nn.Linear(2, 2)));
      assert.deepEqual(names, Object.keys(new nn.Linear(2, 2)));
    }),
  );
});

describe('setRequiresAllReduce(false)', () => {
  const mesh = () => initDeviceMesh('cpu', [2, 2], { meshDimNames: ['replicate', 'shard'] });
  const last = 2;
  const cases: Record<string, (micro: number) => Loss> = {
    'that uses all modules': () => lossOf,
    'that leaves out a module': (micro) => (micro === last ? shortLossOf : lossOf),
    'that uses a module for the first time': (micro) => (micro === last ? lossOf : shortLossOf),
  };
  for (const [what, lossFor] of Object.entries(cases))
    it(
      `sums shards until a pass reduces over the replicas: one ${what}`,
      withRanks(4, async (rank) => {
        const alone = newModel();
        const model = newModel();
        for (const block of [model.first, model.third]) fullyShard(block, { mesh: mesh() });
        class Root extends nn.Module<[x: Tensor, loss: Loss], Tensor> {
          model = model;
          override forward(x: Tensor, loss: Loss): Tensor {
            return loss(this.model, x);
          }
        }
        const root = fullyShard(new Root(), { mesh: mesh() });
        for (let micro = 0; micro <= last; micro++) {
          root.setRequiresAllReduce(micro === last);
          lossFor(micro)(alone, batchOf(micro)).backward();
          const loss = root(partOf(batchOf(micro), rank, 4), lossFor(micro));
          loss.backward();
          if (micro < last) for (const p of model.parameters()) assert.equal(p.grad, null);
        }
        adamOf(alone).step();
        adamOf(model).step();
        assertClose(await valuesOf(model), await valuesOf(alone));
      }),
    );

  it(
    'divides sums of float16 by the number of all ranks once',
    withRanks(4, async (rank) => {
      const alone = newModel(float32);
      const model = newModel(float32);
      const mpPolicy = new MixedPrecisionPolicy({ reduceDtype: float16 });
      const root = fullyShard(model, { mesh: mesh(), mpPolicy });
      for (let micro = 0; micro < 2; micro++) {
        root.setRequiresAllReduce(micro === 1);
        lossOf(alone, batchOf(micro, float32)).backward();
        lossOf(model, partOf(batchOf(micro, float32), rank, 4)).backward();
      }
      for (const [name, p] of alone.namedParameters()) {
        const grad = new Map(model.namedParameters()).get(name)?.grad?.fullTensor() as Tensor;
        const [error] = await grad
          .sub(p.grad as Tensor)
          .abs()
          .max()
          .reshape([1])
          .read();
        assert.ok(Number(error) < 5e-3, `${name}: ${error}`);
      }
    }),
  );
});

describe('an error in a pass that accumulates', () => {
  for (const [setter, mesh] of [
    ['setRequiresGradientSync', [4]],
    ['setRequiresAllReduce', [2, 2]],
  ] as const)
    it(
      `drops what has accumulated by ${setter}(false), so that the step can be repeated`,
      withRanks(4, async (rank) => {
        const alone = newModel();
        const model = newModel();
        fullyShard(model.third, { mesh: initDeviceMesh('cpu', mesh) });
        let fails = true;
        model.second.registerFullBackwardPreHook(() => {
          if (fails) throw new RangeError('planted');
        });
        const root = fullyShard(model, { mesh: initDeviceMesh('cpu', mesh) });
        const backward = (): void => lossOf(model, partOf(batchOf(0), rank, 4)).backward();
        root[setter](false);
        assert.throws(backward, /planted/);
        fails = false;
        root[setter](true);
        model.zeroGrad();
        backward();
        lossOf(alone, batchOf(0)).backward();
        adamOf(alone).step();
        adamOf(model).step();
        assertClose(await valuesOf(model), await valuesOf(alone));
      }),
    );
});

describe('setUnshardInBackward', () => {
  class Words extends nn.Module {
    tokens = new nn.Embedding(8, 4);
    inner = new nn.Linear(4, 4);
    head = new nn.Linear(4, 8);
    forward(ids: Tensor): Tensor {
      return this.head(this.inner(this.tokens(ids)));
    }
  }
  for (const [setting, gathers] of [
    [true, 3],
    [false, 2],
  ] as const)
    it(
      `makes backward gather ${gathers} groups if it is ${setting} for one of three`,
      withRanks(2, () => {
        const model = new Words();
        const tokens = fullyShard(model.tokens);
        for (const module of [model.inner, model.head, model]) fullyShard(module);
        tokens.setUnshardInBackward(setting);
        const ids = randint(0, 8, [2, 3], { dtype: int64 });
        const loss = crossEntropy(model(ids).flatten(0, 1), ids.flatten());
        const mode = new CommDebugMode();
        mode.run(() => loss.backward());
        assert.deepEqual(mode.getCommCounts(), { allGather: gathers, reduceScatter: 3 });
        assert.ok(model.tokens.weight.grad !== null);
      }),
    );
});
