/** State dicts, names and whole parameters of wrapped modules. */
import assert from 'node:assert/strict';
import { FullyShardedDataParallel } from '../../../lib/distributed.js';
import { manualSeed, nn, optim, type Tensor, zeros } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import {
  assertClose,
  batchOf,
  Model,
  makeModel,
  oneDevice,
  step,
  Tied,
  valuesOf,
  wrap,
} from './models.js';

const both = [false, true];
const summon = FullyShardedDataParallel.summonFullParams;

describe('a FullyShardedDataParallel', () => {
  for (const useOrigParams of both) {
    it(
      `has the state dict of the plain module, with useOrigParams: ${useOrigParams}`,
      withRanks(3, async () => {
        const expected = await valuesOf(Object.entries(makeModel(Tied).stateDict()));
        const model = wrap(makeModel(Tied), { useOrigParams });
        assertClose(await valuesOf(Object.entries(model.stateDict())), expected, 0);
        const shapes = Object.values(model.stateDict()).map(({ shape }) => shape);
        assert.deepEqual(shapes, [[4, 6], [6, 4], [6], [4, 6]]);
      }),
    );

    it(
      `loads the state dict of another model, with useOrigParams: ${useOrigParams}`,
      withRanks(3, async (rank) => {
        const source = makeModel(Model);
        for (const p of source.parameters()) p.detach().mul_(2);
        const model = wrap(makeModel(Model), { useOrigParams });
        model.loadStateDict(source.stateDict());
        const expected = await valuesOf(Object.entries(source.stateDict()));
        assertClose(await valuesOf(Object.entries(model.stateDict())), expected, 0);
        const x = batchOf(0, rank, 3);
        assert.deepEqual(
          [...(await model(x).detach().read())],
          [...(await source(x).detach().read())],
        );
        assert.throws(() => model.loadStateDict({ other: zeros([2]) }), {
          code: 'ERR_CHECKPOINT',
          message: /missing: first.up.weight,.*\n.*unexpected: other/,
        });
        assertClose(await valuesOf(Object.entries(model.stateDict())), expected, 0);
      }),
    );

    it(
      `gives whole parameters to a function, with useOrigParams: ${useOrigParams}`,
      withRanks(3, async () => {
        const expected = await valuesOf(makeModel(Model).namedParameters());
        const model = wrap(makeModel(Model), { useOrigParams });
        const before = [...model.parameters()];
        const seen = await summon(model, () => valuesOf(model.namedParameters()));
        assertClose(seen, expected, 0);
        assert.deepEqual([...model.parameters()], before);
        summon(model, () =>
          model.getParameter('_fsdp_wrapped_module.second.bias').detach().fill_(3),
        );
        summon(
          model,
          () => model.getParameter('_fsdp_wrapped_module.second.bias').detach().fill_(5),
          {
            writeback: false,
          },
        );
        const state = await valuesOf(Object.entries(model.stateDict()));
        assert.deepEqual(state.get('second.bias'), [3, 3, 3, 3, 3, 3]);
        assert.throws(
          () =>
            summon(model, () => {
              throw new Error('inside');
            }),
          /inside/,
        );
        assert.deepEqual([...model.parameters()], before);
        const [kept, copied] = summon(model, () => {
          const state = model.stateDict();
          model.loadStateDict(state);
          const weight = state['second.weight'] as Tensor;
          return [weight, weight.clone()] as const;
        });
        assert.deepEqual([...(await copied.read())], expected.get('second.weight'));
        await assert.rejects(async () => kept.read(), { code: 'ERR_FREED' });
        model.apply((module) => {
          if (module instanceof nn.Linear) module.bias?.detach().fill_(1);
        });
        const applied = await valuesOf(Object.entries(model.stateDict()));
        assert.deepEqual(applied.get('first.up.bias'), new Array(10).fill(1));
      }),
    );
  }

  it(
    'names parameters as the plain module does with useOrigParams, else by the wrapper',
    withRanks(2, () => {
      const names = (useOrigParams: boolean): string[] =>
        [...wrap(makeModel(Tied), { useOrigParams }).namedParameters()].map(([name]) => name);
      assert.deepEqual(
        names(true),
        [...makeModel(Tied).namedParameters()].map(([name]) => name),
      );
      assert.deepEqual(names(false), [
        '_fsdp_wrapped_module._flat_param',
        '_fsdp_wrapped_module.block._fsdp_wrapped_module._flat_param',
      ]);
    }),
  );

  it(
    'has the names of the plain module in the state dict of a module above',
    withRanks(2, () => {
      const inner = makeModel(Model);
      const names = Object.keys(inner.stateDict());
      inner.first = new FullyShardedDataParallel(inner.first);
      assert.deepEqual(Object.keys(inner.stateDict()), names);
      assert.deepEqual(inner.loadStateDict(inner.stateDict()).missingKeys, []);
      const { missingKeys } = inner.loadStateDict({}, { strict: false });
      assert.deepEqual(missingKeys, names);
    }),
  );

  it(
    'trains on after a hook of a state dict threw',
    withRanks(2, async (rank) => {
      const expected = await oneDevice(Model, 1);
      const inner = makeModel(Model);
      const model = wrap(inner);
      const adam = new optim.AdamW(model.parameters(), { lr: 0.01 });
      const state = model.stateDict();
      const fail = (): void => {
        throw new Error('in a hook');
      };
      const hooks = [
        inner.second.registerStateDictHook(fail),
        inner.second.registerLoadStateDictPreHook(fail),
      ];
      assert.throws(() => model.stateDict(), /in a hook/);
      assert.throws(() => model.loadStateDict(state), /in a hook/);
      for (const hook of hooks) hook.remove();
      assertClose(
        await valuesOf(Object.entries(model.stateDict())),
        await valuesOf(Object.entries(state)),
        0,
      );
      step(model, adam, batchOf(0, rank, 2));
      assertClose(await valuesOf(Object.entries(model.stateDict())), expected);
    }),
  );

  it(
    'starts with the values of the first rank where syncModuleStates asks for it',
    withRanks(3, async (rank) => {
      const made = (seed: number): Model => {
        manualSeed(seed);
        return new Model();
      };
      const model = new FullyShardedDataParallel(made(rank), { syncModuleStates: true });
      const expected = await valuesOf(Object.entries(made(0).stateDict()));
      assertClose(await valuesOf(Object.entries(model.stateDict())), expected, 0);
    }),
  );
});
