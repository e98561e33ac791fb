/** Several modules as one group: one gather, one reduction, and the gradients of one device. */
import assert from 'node:assert/strict';
import {
  applyActivationCheckpointing,
  CommDebugMode,
  DTensor,
  type FSDPModule,
  fullyShard,
  MixedPrecisionPolicy,
} from '../../../lib/distributed.js';
import { compile, nn, ShardingError, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import { assertClose, isSharded, type Values } from './model.js';
import {
  assertTrained,
  Block,
  body,
  type Gpt,
  gradientsOf,
  idsOf,
  lossOf,
  modelOf,
  once,
  type Sharded,
  shardedOf,
  trained,
  USES,
  type Use,
} from './tied-model.js';

const collectivesOf = (fn: () => void): string[] => {
  const mode = new CommDebugMode();
  mode.run(fn);
  return mode.events.map(({ phase, kind }) => `${phase} ${kind}`);
};

describe('fullyShard of several modules', () => {
  for (const [name, use] of Object.entries(USES))
    for (const isTied of [true, false])
      for (const reshardAfterForward of [null, false])
        it(
          `trains like one device: ${name}${isTied ? ', tied' : ''}, reshardAfterForward: ` +
            `${reshardAfterForward}`,
          withRanks(2, async (rank) => {
            const model = shardedOf(use, isTied, { reshardAfterForward });
            const found = await trained(model, [rank]);
            assert.ok(isSharded(model));
            assertTrained(found, await trained(modelOf(use, isTied), [0, 1]));
          }),
        );

  const prepares: Readonly<Record<string, (model: Sharded) => void>> = {
    'with explicit prefetch': (model) => {
      model.setModulesToForwardPrefetch([model.tokens, model.head, model.first]);
      (model.first as Block & FSDPModule).setModulesToForwardPrefetch([model.head]);
      (model.head as nn.Linear & FSDPModule).setModulesToBackwardPrefetch([model.first]);
    },
    'with setters of one of the modules': (model) => {
      const tokens = model.tokens as nn.Embedding & FSDPModule;
      tokens.setReshardAfterForward(false);
      tokens.setReshardAfterBackward(false);
    },
    'gathered before forward': (model) => {
      const tokens = model.tokens as nn.Embedding & FSDPModule;
      tokens.unshard({ asyncOp: true });
    },
  };
  for (const [name, prepare] of Object.entries(prepares))
    it(
      `trains like one device ${name}`,
      withRanks(2, async (rank) => {
        const model = shardedOf(once, true);
        await trained(model, [rank]); // the root runs first
        const again = await trained(model, [rank], (given) => prepare(given as Sharded));
        const alone = modelOf(once, true);
        await trained(alone, [0, 1]);
        assertTrained(again, await trained(alone, [0, 1]));
      }),
    );

  it(
    'trains like one device when all modules are frozen, and when one is',
    withRanks(2, async (rank) => {
      for (const frozen of [['tokens', 'head'], ['head']] as const) {
        const made = [shardedOf(once, false), modelOf(once, false)] as const;
        for (const model of made)
          for (const name of frozen)
            for (const p of model[name].parameters()) p.requiresGrad_(false);
        const found = await trained(made[0], [rank]);
        assertTrained(found, await trained(made[1], [0, 1]));
      }
    }),
  );

  it(
    'trains like one device with checkpointed modules',
    withRanks(2, async (rank) => {
      const model = modelOf(once, true);
      applyActivationCheckpointing(model, { checkFn: (each) => each instanceof Block });
      fullyShard([model.norm, model.head, model.tokens]);
      fullyShard([model.first, model.second]);
      fullyShard(model);
      const found = await trained(model, [rank]);
      const expected = await trained(modelOf(once, true), [0, 1]);
      assert.deepEqual(
        [...found.values.values()].flat().map((value) => value.toFixed(8)),
        [...expected.values.values()].flat().map((value) => value.toFixed(8)),
      );
    }),
  );

  it(
    'trains like one device on ranks that are processes',
    withRanks(
      2,
      async (rank) => {
        const { values } = await trained(shardedOf(once, true), [rank]);
        const expected = [...(await trained(modelOf(once, true), [0, 1])).values.values()].flat();
        [...values.values()].flat().forEach((value, i) => {
          assert.ok(Math.abs(value - (expected[i] as number)) < 1e-9);
        });
      },
      { mode: 'process', timeoutMs: 240_000 },
    ),
  );

  it(
    'accumulates gradients without a reduction until the last pass',
    withRanks(2, async (rank) => {
      const accumulated = async (model: Gpt, shares: readonly number[]): Promise<Values> => {
        for (const pass of [0, 1, 2]) {
          if ('setRequiresGradientSync' in model)
            (model as Sharded).setRequiresGradientSync(pass === 2);
          for (const share of shares)
            lossOf(model as never, idsOf(pass, share))
              .div(shares.length)
              .backward();
        }
        return gradientsOf(model);
      };
      const found = await accumulated(shardedOf(once, true), [rank]);
      assertClose(found, await accumulated(modelOf(once, true), [0, 1]));
    }),
  );

  it(
    'gathers once for both in forward, and once in backward',
    withRanks(2, () => {
      const model = shardedOf(once, false);
      const step = (): void => void lossOf(model as never, idsOf(0, 0)).backward();
      step();
      const seen = collectivesOf(step);
      const gathers = (phase: string): number =>
        seen.filter((each) => each.startsWith(`${phase} allGather`)).length;
      assert.deepEqual([gathers('forward'), gathers('backward')], [3, 2]); // the root stays whole
      assert.equal(seen.filter((each) => each.includes('reduceScatter')).length, 3);
    }),
  );

  it(
    'frees whole parameters after the last module, and after the forward of a root that skips one',
    withRanks(2, () => {
      let whole: { size(): number } | null = null;
      const sizes: number[] = [];
      const look: Use = (model, ids) => {
        const x = model.tokens(ids);
        whole = model.tokens.weight.untypedStorage();
        sizes.push(whole.size());
        const y = model.head(body(model, x));
        sizes.push(whole.size());
        return y;
      };
      const model = shardedOf(look, true);
      lossOf(model as never, idsOf(0, 0)).backward();
      assert.ok((sizes[0] as number) > 0);
      assert.equal(sizes[1], 0);

      const skips = shardedOf((each, ids) => {
        const x = each.tokens(ids);
        whole = each.tokens.weight.untypedStorage();
        assert.notEqual(whole.size(), 0);
        return x;
      }, true);
      const loss = lossOf(skips as never, idsOf(0, 0));
      assert.equal((whole as { size(): number } | null)?.size(), 0);
      assert.ok(isSharded(skips));
      loss.backward();
      assert.equal((whole as { size(): number } | null)?.size(), 0);
    }),
  );

  it(
    'lets a module run alone, outside of the root',
    withRanks(2, async () => {
      const model = shardedOf(once, true);
      model(idsOf(0, 0));
      const found = model.tokens(idsOf(1, 0));
      assert.ok(isSharded(model));
      const expected = modelOf(once, true).tokens(idsOf(1, 0));
      assert.deepEqual([...(await found.read())], [...(await expected.read())]);
    }),
  );

  it(
    'casts inputs and outputs of each module',
    withRanks(2, () => {
      const mpPolicy = new MixedPrecisionPolicy({
        paramDtype: 'bfloat16',
        outputDtype: 'float32',
      });
      const seen: string[] = [];
      const model = modelOf((each, ids) => {
        const x = each.tokens(ids);
        const y = each.head(x);
        seen.push(x.dtype.name, y.dtype.name);
        return y;
      }, true);
      model.float();
      model.head.registerForwardPreHook((_, [x]) => void seen.push((x as Tensor).dtype.name));
      fullyShard([model.tokens, model.head], { mpPolicy });
      fullyShard(model);
      lossOf(model as never, idsOf(0, 0)).backward();
      assert.deepEqual(seen, ['bfloat16', 'float32', 'float32']);
    }),
  );

  it(
    'is right after an error in one of the modules, and after one between them',
    withRanks(2, async (rank) => {
      for (const where of ['between', 'inside'] as const) {
        let fails = true;
        const model = shardedOf((each, ids) => {
          const x = each.tokens(ids);
          if (fails && where === 'between') throw new RangeError('failed');
          return each.head(body(each, x));
        }, true);
        model.head.registerForwardPreHook(() => {
          if (fails) throw new RangeError('failed');
        });
        assert.throws(() => model(idsOf(0, rank)), /failed/);
        assert.ok(isSharded(model));
        fails = false;
        const found = await trained(model, [rank]);
        assertTrained(found, await trained(modelOf(once, true), [0, 1]));
      }
    }),
  );

  for (const backend of ['aot_eager', 'inductor'] as const)
    for (const name of ['each once', 'one of them again after the other', 'the first one alone'])
      it(
        `compiles into one graph of the model: ${name}, ${backend}`,
        withRanks(2, async (rank) => {
          const use = USES[name] as Use;
          const model = shardedOf(use, true);
          const run = compile(model, { backend, fullgraph: true }) as unknown as (
            ids: Tensor,
          ) => Tensor;
          const found = await trained(model, [rank], () => {}, run);
          assertTrained(found, await trained(modelOf(use, true), [0, 1]));
        }),
      );

  for (const part of ['tokens', 'head', 'first'] as const)
    it(
      `trains like one device with a module that is compiled alone: ${part}`,
      withRanks(2, async (rank) => {
        const model = shardedOf(once, true);
        model[part].compile();
        const found = await trained(model, [rank]);
        assertTrained(found, await trained(modelOf(once, true), [0, 1]));
      }),
    );

  it(
    'returns the list, whose modules have the methods of the group',
    withRanks(2, () => {
      const model = modelOf(once, true);
      const given = [model.tokens, model.head] as const;
      const [tokens, head] = fullyShard(given);
      assert.deepEqual([tokens === model.tokens, head === model.head], [true, true]);
      fullyShard(model);
      model(idsOf(0, 0));
      tokens.unshard();
      assert.ok(!(model.head.weight instanceof DTensor));
      head.reshard();
      assert.ok(model.tokens.weight instanceof DTensor);
    }),
  );

  it(
    'refuses lists without modules, containers, modules in others, and first forwards without a root',
    withRanks(2, () => {
      const model = modelOf(once, false);
      assert.throws(() => fullyShard([]), /expected module to be an nn.Module or a list of some/);
      assert.throws(() => fullyShard([model.head, 1] as never), /or a list of some/);
      assert.throws(() => fullyShard([model.head, new nn.ModuleList([])]), /container/);
      assert.throws(
        () => fullyShard([model.first, model.first.up]),
        /"up" \(Linear\) is in the list/,
      );
      fullyShard([model.tokens, model.head]);
      assert.throws(() => fullyShard([model.norm, model.head]), /sharded already/);
      assert.throws(
        () => model.tokens(idsOf(0, 0)),
        (error: Error) => {
          assert.ok(error instanceof ShardingError);
          assert.match(error.message, /sharded module around.*\[Embedding, Linear\]/s);
          return true;
        },
      );
    }),
  );
});
