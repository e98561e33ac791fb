/** Where parameters are during a step, what is communicated when, and what errors leave behind. */
import assert from 'node:assert/strict';
import {
  CommDebugMode,
  DTensor,
  FSDPParamGroup,
  fullyShard,
  initDeviceMesh,
  TrainingState,
} from '../../../lib/distributed.js';
import {
  autograd,
  FreedError,
  manualSeed,
  nn,
  noGrad,
  ones,
  type Tensor,
} from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import {
  adamOf,
  assertClose,
  batchOf,
  isSharded,
  lossOf,
  Model,
  newModel,
  partOf,
  STEPS,
  sharded,
  trained,
  trainedAlone,
  trainStep,
  valuesOf,
} from './model.js';

/** Collectives by name that `fn` starts. */
function collectives(fn: () => void): Readonly<Record<string, number>> {
  const mode = new CommDebugMode();
  mode.run(fn);
  return mode.getCommCounts() as never;
}

describe('the shards of fullyShard', () => {
  it(
    'are rows by ceil(n / ranks), of which the last ranks may have fewer or none',
    withRanks(4, (rank) => {
      const linear = fullyShard(new nn.Linear(2, 3));
      const rows = [1, 1, 1, 0][rank];
      assert.deepEqual(linear.weight.toLocal().shape, [rows, 2]);
      assert.deepEqual(linear.bias?.toLocal().shape, [rows]);
      assert.deepEqual(linear.weight.shape, [3, 2]);
    }),
  );

  it(
    'keep the values of their own rank, which are not broadcast',
    withRanks(2, async (rank) => {
      const linear = new nn.Linear(2, 4, { bias: false });
      noGrad(() => linear.weight.fill_(rank));
      fullyShard(linear);
      const values = await linear.weight.detach().fullTensor().reshape([-1]).read();
      assert.deepEqual([...values], [0, 0, 0, 0, 1, 1, 1, 1]);
    }),
  );

  it(
    'are what modules hold between steps, while whole parameters are there in forward',
    withRanks(2, (rank) => {
      const model = sharded(newModel());
      const seen: boolean[] = [];
      model.first.up.registerForwardPreHook((up) => void seen.push(up.weight instanceof DTensor));
      assert.ok(isSharded(model));
      lossOf(model, partOf(batchOf(0), rank, 2)).backward();
      assert.deepEqual(seen, [false]);
      assert.ok(isSharded(model));
    }),
  );
});

describe('a step of sharded modules', () => {
  it(
    'gathers each group for forward and all but the root again for backward, and reduces each once',
    withRanks(2, (rank) => {
      const model = sharded(newModel());
      const x = partOf(batchOf(0), rank, 2);
      let loss: Tensor | null = null;
      const forward = collectives(() => {
        loss = lossOf(model, x);
      });
      const backward = collectives(() => (loss as unknown as Tensor).backward());
      assert.deepEqual(forward, { allGather: 3 });
      assert.deepEqual(backward, { allGather: 2, reduceScatter: 3 });
    }),
  );

  it(
    'gathers nothing before backward with reshardAfterForward: false',
    withRanks(2, (rank) => {
      const model = sharded(newModel(), { reshardAfterForward: false });
      const loss = lossOf(model, partOf(batchOf(0), rank, 2));
      assert.deepEqual(
        collectives(() => loss.backward()),
        { reduceScatter: 3 },
      );
    }),
  );

  it(
    'without gradients frees all parameters',
    withRanks(2, (rank) => {
      const model = sharded(newModel());
      noGrad(() => lossOf(model, partOf(batchOf(0), rank, 2)));
      assert.deepEqual(
        collectives(() => noGrad(() => lossOf(model, partOf(batchOf(0), rank, 2)))),
        { allGather: 3 },
      );
    }),
  );

  it(
    'reduces nothing with setRequiresGradientSync(false)',
    withRanks(2, (rank) => {
      const model = sharded(newModel());
      model.setRequiresGradientSync(false);
      const loss = lossOf(model, partOf(batchOf(0), rank, 2));
      assert.deepEqual(
        collectives(() => loss.backward()),
        { allGather: 2 },
      );
      assert.equal(model.second.weight.grad, null);
    }),
  );

  it(
    'runs hooks of sharded parameters, and gives their gradients to autograd.grad',
    withRanks(2, async (rank) => {
      const model = sharded(newModel());
      const { weight } = model.first.up;
      let hooks = 0;
      weight.registerPostAccumulateGradHook(() => void hooks++);
      lossOf(model, partOf(batchOf(0), rank, 2)).backward();
      assert.equal(hooks, 1);
      const [grad] = autograd.grad(lossOf(model, partOf(batchOf(0), rank, 2)), [weight]);
      assert.ok((grad as Tensor) instanceof DTensor);
      const difference = (grad as Tensor)
        .sub(weight.grad as Tensor)
        .abs()
        .fullTensor();
      assert.ok(Math.max(...(await difference.reshape([-1]).read()).map(Number)) < 1e-12);
    }),
  );

  it(
    'may leave a group unused, and use a module twice',
    withRanks(2, async (rank) => {
      class Twice extends Model {
        unused = new nn.Linear(2, 2);
        override forward(x: Tensor): Tensor {
          return this.first(this.second(this.first(x)));
        }
      }
      const make = (): Twice => {
        manualSeed(0);
        return new Twice().double();
      };
      const alone = make();
      const model = make();
      const expected = await trainedAlone(3, alone);
      fullyShard(model.unused);
      assertClose(await trained(sharded(model), rank, 2, 3), expected);
      assert.equal(model.unused.weight.grad, null);
    }),
  );

  it(
    'frees frozen groups when backward has passed them',
    withRanks(2, async (rank) => {
      const alone = newModel();
      const model = newModel();
      for (const each of [alone, model]) each.third.requiresGrad_(false);
      const expected = await trainedAlone(3, alone);
      sharded(model);
      assertClose(await trained(model, rank, 2, 3), expected);
      assert.ok(isSharded(model));
    }),
  );
});

describe('an error in a step of sharded modules', () => {
  const places: Record<string, (model: Model, fail: () => void) => void> = {
    'in the forward of a child': (model, fail) =>
      void model.third.down.registerForwardPreHook(() => fail()),
    'in the forward of the root': (model, fail) =>
      void model.second.registerForwardHook(() => fail()),
    'in a hook of backward': (model, fail) =>
      void model.second.registerFullBackwardPreHook(() => fail()),
  };
  for (const [where, plant] of Object.entries(places))
    it(
      `${where} leaves all groups sharded, and the next step right`,
      withRanks(2, async (rank) => {
        const expected = await trainedAlone();
        const model = newModel();
        let fails = false;
        plant(model, () => {
          if (fails) throw new RangeError('planted');
        });
        sharded(model);
        const adam = adamOf(model);
        for (let step = 0; step < STEPS; step++) {
          if (step === 3) {
            fails = true;
            assert.throws(
              () => lossOf(model, partOf(batchOf(step), rank, 2)).backward(),
              /planted/,
            );
            fails = false;
            assert.ok(isSharded(model));
            model.zeroGrad();
          }
          trainStep(model, adam, step, rank, 2);
        }
        assertClose(await valuesOf(model), expected);
      }),
    );
});

describe('fullyShard refuses', () => {
  const refused: Record<string, [() => unknown, RegExp]> = {
    'a container without forward': [
      () => fullyShard(new nn.ModuleList([new nn.Linear(2, 2)])),
      /expected a module with forward, got the container ModuleList/,
    ],
    'a list of parameters': [
      () => fullyShard(new nn.ParameterList([new nn.Parameter(ones([2]))])),
      /got the container ParameterList\. Call fullyShard on .* the one that uses it/,
    ],
    'a module twice': [
      () => fullyShard(fullyShard(new nn.Linear(2, 2))),
      /got Linear, which is sharded already, with "weight", "bias"\. Call fullyShard once on each/,
    ],
    'a module of a model twice, by its path': [
      () => {
        const model = sharded(newModel());
        noGrad(() => model(batchOf(0)));
        fullyShard(model.first);
      },
      /got "first" \(Net\), which is sharded already, with "first\.up\.weight", .*… \(6\)\./,
    ],
    'parameters without dims': [
      () => {
        const linear = new nn.Linear(2, 2);
        linear.registerParameter('scale', new nn.Parameter(ones([])));
        fullyShard(linear);
      },
      /parameters of at least one dim, got "scale"/,
    ],
    'a reshardAfterForward that does not divide the ranks': [
      () => fullyShard(new nn.Linear(2, 2), { reshardAfterForward: 3 }),
      /a divisor of the 2 ranks that shard, got 3/,
    ],
    'a mesh of three dims': [
      () => fullyShard(new nn.Linear(2, 2), { mesh: initDeviceMesh('cpu', [1, 1, 2]) }),
      /expected a mesh of one dim, which shards/,
    ],
    'what is no module': [
      () => fullyShard(ones([2]) as never),
      /expected module to be an nn.Module/,
    ],
  };
  for (const [what, [call, text]] of Object.entries(refused))
    it(
      what,
      withRanks(2, () => void assert.throws(call, text)),
    );

  it(
    'to run the root after one of its modules',
    withRanks(1, () => {
      const model = sharded(newModel());
      noGrad(() => model.first(batchOf(0)));
      assert.throws(() => model(batchOf(0)), /after one of its module "first"/);
    }),
  );

  it(
    'a first forward of parameters without memory, by their names',
    withRanks(1, () => {
      const linear = fullyShard(new nn.Linear(2, 2, { device: 'meta' }));
      assert.throws(
        () => linear(ones([1, 2])),
        /on the device meta: weight, bias\. Call module.toEmpty/,
      );
    }),
  );
});

describe('a whole parameter that the program keeps', () => {
  it(
    'cannot be read after forward; the error names the module and says what to do',
    withRanks(2, (rank) => {
      const model = sharded(newModel());
      let kept: Tensor | null = null;
      model.first.up.registerForwardHook((up) => {
        kept = up.weight;
      });
      noGrad(() => lossOf(model, partOf(batchOf(0), rank, 2)));
      assert.throws(
        () => (kept as unknown as Tensor).add(1),
        (error: Error) =>
          error instanceof FreedError &&
          /It is the whole parameter "first\.up\.weight" of "first", .* or call unshard\(\) on/.test(
            error.message,
          ),
      );
    }),
  );
});

describe('ranks whose parameters differ', () => {
  it(
    'learn it from the first gather, which names the module and the sizes',
    withRanks(2, async (rank) => {
      const model = new nn.Sequential(new nn.Linear(4, 4), new nn.Linear(4, rank === 0 ? 4 : 6));
      fullyShard(model.getSubmodule('1'));
      fullyShard(model);
      const y = model(ones([2, 4]));
      await assert.rejects(
        y.read(),
        /allGatherIntoTensor of (30|20) float32 at fullyShard of 1 of the parameters of "1"/,
      );
    }),
  );
});

describe('a model on the device meta', () => {
  it(
    'gets memory and values after it was sharded',
    withRanks(2, async (rank) => {
      const model = new nn.Linear(3, 5, { device: 'meta' });
      fullyShard(model, { mesh: initDeviceMesh('cpu', [2]) });
      model.toEmpty('cpu');
      noGrad(() => {
        model.weight.fill_(2);
        model.bias?.fill_(rank);
      });
      const y = model(ones([1, 3]));
      assert.deepEqual([...(await y.reshape([-1]).read())], [6, 6, 6, 7, 7]);
    }),
  );
});

describe('FSDPParamGroup', () => {
  it('restores its training state after useTrainingState, also after an error', () => {
    const group = new FSDPParamGroup([], new nn.Linear(1, 1), null, null, null, null, null);
    assert.equal(group.trainingState, TrainingState.IDLE);
    const inside = group.useTrainingState(TrainingState.FORWARD, () => group.trainingState);
    assert.equal(inside, TrainingState.FORWARD);
    assert.throws(() =>
      group.useTrainingState(TrainingState.PRE_BACKWARD, () => {
        throw new Error('inside');
      }),
    );
    assert.equal(group.trainingState, TrainingState.IDLE);
  });
});
