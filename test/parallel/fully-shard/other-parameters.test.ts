/** Ranks whose parameters differ, although their shards have equal sizes. */
import assert from 'node:assert/strict';
import {
  CommDebugMode,
  type DTensor,
  type FSDPOptions,
  FullyShardedDataParallel,
  fullyShard,
  initDeviceMesh,
  MixedPrecisionPolicy,
} from '../../../lib/distributed.js';
import { nn, noGrad, ones, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';

/** Adds its parameters. */
class Sum extends nn.Module {
  private readonly names: readonly string[];
  constructor(shapes: Readonly<Record<string, readonly number[]>>) {
    super();
    this.names = Object.keys(shapes);
    for (const [name, shape] of Object.entries(shapes))
      this.registerParameter(name, new nn.Parameter(ones(shape)));
  }
  forward(x: Tensor): Tensor {
    const held = this as unknown as Readonly<Record<string, Tensor>>;
    return this.names.reduce((sum, name) => sum.add((held[name] as Tensor).sum()), x);
  }
}

type Wrap = (module: nn.AnyModule) => nn.AnyModule;

const wraps: Record<string, Wrap> = {
  fullyShard: (module) => fullyShard(module),
  FullyShardedDataParallel: (module) => new FullyShardedDataParallel(module as never),
};

/** Runs a step of a model in which the ranks have other modules, and reads a result. */
async function step(wrap: Wrap, inner: nn.AnyModule): Promise<void> {
  const model = wrap(new nn.Sequential(new nn.Identity(), wrap(inner) as nn.Module)) as nn.Module;
  const loss = model(ones([1])).sum();
  if (loss.requiresGrad) loss.backward();
  await loss.read();
}

const cases: Record<string, [(rank: number) => nn.AnyModule, RegExp, RegExp]> = {
  names: [
    (rank) => new Sum(rank === 0 ? { a: [4] } : { b: [4] }),
    /a float32\[4\]/,
    /b float32\[4\]/,
  ],
  order: [
    (rank) => new Sum(rank === 0 ? { a: [4, 2], b: [8] } : { b: [8], a: [4, 2] }),
    /a float32\[4, 2\]; b float32\[8\]/,
    /b float32\[8\]; a float32\[4, 2\]/,
  ],
  shapes: [
    (rank) => new Sum({ a: rank === 0 ? [5, 2] : [6, 2] }),
    /a float32\[5, 2\]/,
    /a float32\[6, 2\]/,
  ],
  requiresGrad: [
    (rank) => new Sum({ a: [4] }).requiresGrad_(rank === 0),
    /a float32\[4\]/,
    /a float32\[4\] frozen/,
  ],
  'the last of many parameters': [
    (rank) =>
      new Sum(
        Object.fromEntries(
          Array.from({ length: 40 }, (_, i) => [
            i === 39 && rank === 1 ? 'other' : `parameter_${i}`,
            [2],
          ]),
        ),
      ),
    /40 parameters of .* by their hashes 1-5 [0-9a-f]{6}, .*, 36-40 [0-9a-f]{6}: parameter_0/,
    /Print namedParameters\(\) of it where the hashes differ/,
  ],
};

describe('parameters that differ between ranks and have shards of equal sizes', () => {
  for (const [op, wrap] of Object.entries(wraps))
    for (const [what, [make, first, second]] of Object.entries(cases))
      it(
        `are an error of ${op} that shows both: ${what}`,
        withRanks(2, async (rank) => {
          await assert.rejects(step(wrap, make(rank)), (error: Error & { code?: string }) => {
            assert.equal(error.code, 'ERR_COLLECTIVE');
            const text = error.message;
            assert.match(text, first);
            assert.match(text, second);
            assert.match(text, new RegExp(`rank ${1 - rank} called .* at ${op} of .*"[^"]*1`));
            assert.match(text, /Build the same model on all ranks\./);
            return true;
          });
        }),
      );

  it(
    'are found where all compute in another dtype than that of their shards',
    withRanks(2, async (rank) => {
      const mpPolicy = new MixedPrecisionPolicy({ paramDtype: 'float32' });
      const wrap: Wrap = (module) => fullyShard(module, { mpPolicy });
      const model = new Sum({ a: [4] }).to(rank === 0 ? 'float32' : 'float64');
      await assert.rejects(step(wrap, model), /a float(32|64)\[4\].*a float(32|64)\[4\]/);
    }),
  );

  it(
    'are found between replicas, by the first reduction',
    withRanks(4, async (rank) => {
      const mesh = initDeviceMesh('cpu', [2, 2], { meshDimNames: ['replicas', 'shards'] });
      const wrap: Wrap = (module) => fullyShard(module, { mesh });
      const model = wrap(new Sum(rank < 2 ? { a: [4] } : { b: [4] })) as Sum;
      model(ones([1]))
        .sum()
        .backward();
      const [grad] = [...model.parameters()].map((p) => p.grad as Tensor);
      await assert.rejects(
        (grad as DTensor).toLocal().read(),
        /a float32\[4\].*b float32\[4\]|b float.*a float/,
      );
    }),
  );

  it(
    'are found with NO_SHARD, by the first reduction',
    withRanks(2, async (rank) => {
      const options: FSDPOptions = { shardingStrategy: 'NO_SHARD' };
      const sum = new Sum(rank === 0 ? { a: [4] } : { b: [4] });
      const model = new FullyShardedDataParallel(sum, options);
      model(ones([1]))
        .sum()
        .backward();
      const [grad] = [...model.parameters()].map((p) => p.grad as Tensor);
      await assert.rejects(
        (grad as Tensor).read(),
        /a float32\[4\].*b float32\[4\]|b float.*a float/,
      );
    }),
  );

  it(
    'are found where ranks use some of them only',
    withRanks(2, async (rank) => {
      class Either extends nn.Module {
        a = new nn.Parameter(ones([4]));
        b = new nn.Parameter(ones([4]));
        forward(x: Tensor): Tensor {
          return x.mul((rank === 0 ? this.a : this.b).sum());
        }
      }
      const model = fullyShard(new Either());
      model(ones([1]))
        .sum()
        .backward();
      const { grad } = rank === 0 ? model.a : model.b;
      await assert.rejects(
        (grad as DTensor).toLocal().read(),
        /number 1 of its group: [ab], this rank .* of the gradients of number 1 of its group: [ab]\. Use the same parameters/,
      );
    }),
  );

  it(
    'are found among many by the hash of those around them',
    withRanks(2, async (rank) => {
      const names = Array.from({ length: 40 }, (_, i) => (i + rank === 13 ? 'other' : `p${i}`));
      const model = fullyShard(new Sum(Object.fromEntries(names.map((name) => [name, [2]]))));
      const error = await model(ones([1]))
        .read()
        .then(
          () => new Error('no error'),
          (thrown: Error) => thrown,
        );
      const [mine, theirs] = [...error.message.matchAll(/by their hashes ([^:]+)/g)].map((match) =>
        (match[1] as string).split(', '),
      ) as [string[], string[]];
      assert.equal(mine.length, 8);
      const differing = mine.filter((hash, i) => hash !== theirs[i]);
      assert.match(differing.join(), /^11-15 [0-9a-f]{6}$/);
    }),
  );

  it(
    'are compared without collectives of their own, however many they are',
    withRanks(2, () => {
      const counts = (model: Sum): unknown => {
        const mode = new CommDebugMode();
        mode.run(() => noGrad(() => model(ones([1]))));
        return mode.getCommCounts();
      };
      assert.deepEqual(counts(fullyShard(new Sum({ a: [4], b: [2] }))), { allGather: 1 });
      const names = Array.from({ length: 400 }, (_, i) => [`parameter_${i}`, [2]]);
      const many = fullyShard(new Sum(Object.fromEntries(names)));
      assert.deepEqual(counts(many), { allGather: 1 });
      assert.deepEqual(counts(many), { allGather: 1 });
    }),
  );
});
