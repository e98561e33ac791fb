/** What cannot be flattened or wrapped is an error that says what to do. */
import assert from 'node:assert/strict';
import {
  FlatParamHandle,
  type FSDPOptions,
  FullyShardedDataParallel,
  initDeviceMesh,
  MixedPrecision,
} from '../../../lib/distributed.js';
import { int64, nn, randn, type Tensor, zeros } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import { batchOf, Model, makeModel, Tied, wrap } from './models.js';

const handleOf = (module: nn.AnyModule, options = {}): FlatParamHandle =>
  new FlatParamHandle([...module.parameters()], module, options);

const pair = (): nn.Sequential => new nn.Sequential(new nn.Linear(2, 3), new nn.Linear(3, 2));

describe('a flat parameter is refused', () => {
  it('of parameters that the module does not have', () => {
    assert.throws(() => new FlatParamHandle([...pair().parameters()], pair()), {
      code: 'ERR_ARGUMENT',
      message: /expected parameters of Sequential, got 4 that neither it nor a module below it has/,
    });
  });

  it('of parameters that are part of another one', () => {
    const module = pair();
    const parameters = [...module.parameters()];
    new FlatParamHandle(parameters, module, { useOrigParams: true });
    assert.throws(
      () => handleOf(new nn.Sequential(pair(), sharing(parameters[0] as nn.Parameter))),
      {
        code: 'ERR_ARGUMENT',
        message: /"1.weight" is part of a flat parameter already/,
      },
    );
  });

  it('of integers', () => {
    const module = new nn.Linear(2, 2);
    module.weight = new nn.Parameter(zeros([2, 2], { dtype: int64 }), false);
    assert.throws(() => handleOf(module), {
      code: 'ERR_DTYPE',
      message: /expected floating parameters, got "weight" of int64/,
    });
  });

  it('of two dtypes', () => {
    const module = pair();
    (module.getSubmodule('1') as nn.Module).double();
    assert.throws(() => handleOf(module), {
      code: 'ERR_DTYPE',
      message: /got float32 for "0.weight" and float64 for "1.weight"/,
    });
  });

  it('of parameters without memory', () => {
    const module = new nn.Linear(2, 2, { device: 'meta' });
    assert.throws(() => handleOf(module), {
      code: 'ERR_DEVICE',
      message: /"weight" on meta.*toEmpty/,
    });
  });

  it('of frozen and other parameters, unless the original ones are kept', () => {
    const module = pair();
    module.getParameter('0.bias').requiresGrad_(false);
    assert.throws(() => handleOf(module), {
      code: 'ERR_ARGUMENT',
      message: /true for "0.weight" and false for "0.bias"\. Pass \{ useOrigParams: true \}/,
    });
    assert.ok(handleOf(module, { useOrigParams: true }).flatParam.requiresGrad);
  });

  it('with a strategy or a dtype that is none', () => {
    assert.throws(() => handleOf(pair(), { shardingStrategy: 'SOME' }), { code: 'ERR_ARGUMENT' });
    assert.throws(() => handleOf(pair(), { mpParamDtype: 'int64' }), { code: 'ERR_ARGUMENT' });
    assert.throws(() => handleOf(pair(), { device: 'tpu' }), { code: 'ERR_DEVICE' });
    assert.throws(() => new MixedPrecision({ paramDtype: 'int8' }), { code: 'ERR_ARGUMENT' });
  });
});

function sharing(parameter: nn.Parameter): nn.Linear {
  const module = new nn.Linear(2, 3, { bias: false });
  module.weight = parameter;
  return module;
}

describe('wrapping is refused', () => {
  for (const useOrigParams of [false, true])
    it(
      `for a parameter that a wrapped module shares, with useOrigParams: ${useOrigParams}`,
      withRanks(1, () => {
        const inner = makeModel(Tied);
        Object.assign(inner, {
          embed: new FullyShardedDataParallel(inner.embed, { useOrigParams }),
        });
        assert.throws(() => new FullyShardedDataParallel(inner, { useOrigParams }), {
          code: 'ERR_ARGUMENT',
          message: /"again.weight" is part of a flat parameter already/,
        });
      }),
    );

  it(
    'for containers and wrappers',
    withRanks(1, () => {
      const wrapped = new FullyShardedDataParallel(pair());
      for (const module of [
        new nn.ModuleList([pair()]),
        new nn.ParameterList([new nn.Linear(2, 2).weight]),
        wrapped,
        3,
      ])
        assert.throws(() => new FullyShardedDataParallel(module as never), {
          code: 'ERR_ARGUMENT',
        });
    }),
  );

  it(
    'for meshes that do not fit the strategy, and unknown options',
    withRanks(2, () => {
      const deviceMesh = initDeviceMesh('cpu', [2]);
      const bad: object[] = [
        { shardingStrategy: 'HYBRID_SHARD' },
        { shardingStrategy: 'HYBRID_SHARD', deviceMesh },
        { deviceMesh: initDeviceMesh('cpu', [2, 1]) },
        { deviceMesh: 3 },
        { cpuOffload: true },
        { mixedPrecision: 'bfloat16' },
        { backwardPrefetch: 'SOMETIMES' },
        { ignoredStates: 3 },
        { ignoredStates: [3] },
        { processGroup: {} },
        { processGroup: 3, shardingStrategy: 'NO_SHARD' },
        { autoWrapPolicy: 3 },
        { limitAllGathers: 2 },
        { limitGathers: true },
      ];
      for (const options of bad)
        assert.throws(() => new FullyShardedDataParallel(pair(), options as FSDPOptions), {
          code: 'ERR_ARGUMENT',
        });
    }),
  );

  it(
    'for whole parameters in forward, forward with those, and parts of another shape',
    withRanks(2, (rank) => {
      const inner = makeModel(Model);
      const model = wrap(inner, { useOrigParams: true });
      const { summonFullParams } = FullyShardedDataParallel;
      const hook = inner.second.registerForwardHook(() => summonFullParams(model, () => {}));
      assert.throws(() => model(batchOf(0, rank, 2)), { code: 'ERR_SHARDING' });
      hook.remove();
      assert.throws(() => summonFullParams(model, () => model(batchOf(0, rank, 2))), {
        code: 'ERR_SHARDING',
        message: /expected no forward while modules hold whole parameters/,
      });
      model(batchOf(0, rank, 2))
        .sum()
        .backward();
      (inner.second.weight as Tensor).data = randn([9]).double();
      assert.throws(() => model(batchOf(0, rank, 2)), {
        code: 'ERR_SHAPE',
        message: /expected "second.weight" to have the shape of its part of this rank's shard/,
      });
    }),
  );

  it(
    'as a root after a wrapper in it was one',
    withRanks(2, (rank) => {
      const inner = makeModel(Model);
      const model = wrap(inner);
      inner.first(batchOf(0, rank, 2));
      assert.throws(() => model(batchOf(0, rank, 2)), {
        code: 'ERR_SHARDING',
        message: /^FullyShardedDataParallel: expected the first forward to be that of the root/,
      });
    }),
  );
});
