/** Parameters that are used while they are not whole: errors name them and say what to do. */
import assert from 'node:assert/strict';
import {
  type FSDPModule,
  type FSDPOptions,
  FullyShardedDataParallel,
  fullyShard,
} from '../../../lib/distributed.js';
import { nn, noGrad, ones, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';

/** A block and a head, with a method that uses the head. */
class Block extends nn.Module {
  up = new nn.Linear(4, 6);
  forward(x: Tensor): Tensor {
    return this.up(x);
  }
}

class Model extends nn.Module {
  layers = new nn.ModuleList<Block>([new Block()]);
  head = new nn.Linear(6, 4);
  forward(x: Tensor): Tensor {
    const [block] = this.layers;
    return this.head((block as Block)(x));
  }
  generate(x: Tensor): Tensor {
    return this.head(x);
  }
}

const input = (): Tensor => ones([2, 4]);
const hidden = (): Tensor => ones([2, 6]);

const firstOf = (model: Model): Block => [...model.layers][0] as Block;

const sharded = (): Model & FSDPModule => {
  const model = new Model();
  fullyShard(firstOf(model));
  return fullyShard(model);
};

const misuses: Record<string, (model: Model) => Tensor> = {
  'a module in a group': (model) => model.head(hidden()),
  'a method': (model) => model.generate(hidden()),
  'forward() of a sharded module': (model) => firstOf(model).forward(input()),
  'a parameter': (model) => input().add(model.head.bias as Tensor),
};

describe('a parameter of fullyShard that is used while it is sharded', () => {
  for (const [what, use] of Object.entries(misuses))
    for (const isInitialized of [false, true])
      it(
        `is an error with its path and advice: ${what}, ${isInitialized ? 'after' : 'before'} a step`,
        withRanks(2, () => {
          const model = sharded();
          if (isInitialized) noGrad(() => model(input()));
          const [parameter, module] =
            what === 'forward() of a sharded module'
              ? ['up.weight', isInitialized ? '"layers.0"' : 'the sharded Block']
              : [what === 'a parameter' ? 'head.bias' : 'head.weight', 'the sharded Model'];
          const path =
            isInitialized && parameter === 'up.weight' ? 'layers.0.up.weight' : parameter;
          assert.throws(
            () => use(model),
            (error: Error & { code?: string }) => {
              assert.equal(error.code, 'ERR_SHARDING');
              assert.ok(
                error.message.includes(`"${path}" is sharded by fullyShard of ${module}`),
                error.message,
              );
              assert.match(error.message, /or call unshard\(\) on it before and reshard\(\) after/);
              return true;
            },
          );
        }),
      );

  it(
    'works between unshard() and reshard(), as the error says',
    withRanks(2, async () => {
      const model = sharded();
      noGrad(() => model(input()));
      model.unshard();
      const y = model.generate(hidden());
      model.reshard();
      assert.equal((await y.read()).length, 8);
    }),
  );
});

describe('a parameter of FullyShardedDataParallel that is used while it is not whole', () => {
  const wrap = (options: FSDPOptions): FullyShardedDataParallel => {
    const model = new Model();
    model.layers = new nn.ModuleList([
      new FullyShardedDataParallel(firstOf(model), options),
    ]) as never;
    return new FullyShardedDataParallel(model, options);
  };
  for (const useOrigParams of [false, true])
    it(
      `is an error with its path and advice, useOrigParams: ${useOrigParams}`,
      withRanks(2, async () => {
        const model = wrap({ useOrigParams });
        const { module } = model as unknown as { module: Model };
        for (const isFirst of [true, false]) {
          const inner = (firstOf(module) as unknown as { module: Block }).module;
          const cases: [string, () => Tensor][] = [
            ['head.weight', () => module.generate(hidden())],
            [isFirst ? 'up.weight' : 'layers.0.up.weight', () => inner.up(input())],
          ];
          for (const [path, use] of cases)
            assert.throws(use, (error: Error) => {
              assert.ok(
                error.message.includes(`"${path}" is part of a flat parameter of FullyShardedData`),
                error.message,
              );
              assert.match(error.message, /summonFullParams\(model, fn\)/);
              return true;
            });
          noGrad(() => model(input()));
        }
        const whole = FullyShardedDataParallel.summonFullParams(model, () =>
          module.generate(hidden()),
        );
        assert.equal((await whole.read()).length, 8);
      }),
    );

  it(
    'cannot be read',
    withRanks(2, async () => {
      const model = wrap({});
      const { module } = model as unknown as { module: Model };
      await assert.rejects(
        async () => module.head.weight.read(),
        /"head\.weight" is part of a flat parameter/,
      );
      assert.deepEqual(module.head.weight.shape, [4, 6]);
    }),
  );
});
