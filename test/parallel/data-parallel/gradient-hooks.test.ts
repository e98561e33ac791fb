/** Post-accumulate hooks of parameters run when DistributedDataParallel has reduced the gradient. */
import assert from 'node:assert/strict';
import { compiledAutograd } from '../../../lib/compile/index.js';
import {
  allGatherObject,
  allReduce,
  DistributedDataParallel,
  type DistributedDataParallelOptions,
} from '../../../lib/distributed.js';
import {
  compile,
  manualSeed,
  nn,
  noGrad,
  ones,
  optim,
  randn,
  type Tensor,
} from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import { BACKENDS } from '../compiled-training.js';
import {
  assertSame,
  Branches,
  batchOf,
  Model,
  row,
  shardOf,
  stepInHooks,
  valuesOf,
} from './models.js';

type Net = nn.Module<[x: Tensor], Tensor>;
type Forward = (x: Tensor) => Tensor;

function modelOf(): Model {
  manualSeed(0);
  return new Model().double();
}

const small = { bucketCapMb: 0.0005 } as const;
const variants: Readonly<Record<string, DistributedDataParallelOptions>> = {
  'one bucket': {},
  'several buckets': small,
  'gradientAsBucketView: false': { ...small, gradientAsBucketView: false },
  findUnusedParameters: { ...small, findUnusedParameters: true },
  staticGraph: { ...small, staticGraph: true },
};

const pass = (run: Forward, x: Tensor): void => run(x).square().mean().backward();

async function trained(run: Forward, model: Net, shard: (x: Tensor) => Tensor) {
  for (let step = 0; step < 4; step++) {
    pass(run, shard(batchOf(step)));
    assert.ok([...model.parameters()].every(({ grad }) => grad === null));
  }
  return valuesOf(model);
}

async function alone(): Promise<number[][]> {
  const model = modelOf();
  stepInHooks(model);
  return trained(
    (x) => model(x),
    model as Net,
    (x) => x,
  );
}

describe('gradient hooks under DistributedDataParallel', () => {
  it(
    'let an optimizer step alike in processes',
    withRanks(
      2,
      async (rank) => {
        manualSeed(5);
        const model = new DistributedDataParallel(new nn.Linear(4, 3));
        for (const p of model.parameters()) {
          const optimizer = new optim.SGD([p], { lr: 0.1 });
          p.registerPostAccumulateGradHook(() => {
            optimizer.step();
            optimizer.zeroGrad();
          });
        }
        manualSeed(rank);
        model(randn([8, 4]))
          .square()
          .mean()
          .backward();
        const parameters = [...model.parameters()];
        assert.ok(parameters.every((p) => p.grad === null));
        const all: number[][] = [[], []];
        await allGatherObject(
          all,
          parameters.map((p) => p.detach().sum().item()),
        );
        assert.deepEqual(all[1], all[0]);
      },
      { mode: 'process', timeoutMs: 240_000 },
    ),
  );

  for (const [name, options] of Object.entries(variants)) {
    it(
      `train like one device with the whole batch (${name})`,
      withRanks(2, async (rank) => {
        const ddp = new DistributedDataParallel(modelOf(), options);
        stepInHooks(ddp);
        const found = await trained(
          (x) => ddp(x),
          ddp,
          (x) => shardOf(x, rank, 2),
        );
        assertSame(found, await alone());
      }),
    );

    it(
      `that were registered before it train like one device (${name})`,
      withRanks(2, async (rank) => {
        const model = modelOf();
        stepInHooks(model);
        const ddp = new DistributedDataParallel(model, options);
        const found = await trained(
          (x) => ddp(x),
          ddp,
          (x) => shardOf(x, rank, 2),
        );
        assertSame(found, await alone());
      }),
    );

    for (const backend of BACKENDS)
      for (const isCaptured of [false, true])
        it(
          `train a compiled model like one device (${name}, ${backend}, backward ` +
            `${isCaptured ? 'captured' : 'by the tape'})`,
          withRanks(2, async (rank) => {
            const ddp = new DistributedDataParallel(modelOf(), options);
            stepInHooks(ddp);
            const run = compile(ddp, { backend, fullgraph: true }) as unknown as Forward;
            const around = (fn: () => void): void => {
              if (isCaptured) compiledAutograd.enable((graph) => compile(graph, { backend }), fn);
              else fn();
            };
            for (let step = 0; step < 4; step++)
              around(() => pass(run, shardOf(batchOf(step), rank, 2)));
            assertSame(await valuesOf(ddp), await alone());
          }),
        );
  }

  it(
    'see what a communication hook has reduced',
    withRanks(2, async (rank) => {
      const ddp = new DistributedDataParallel(modelOf(), small);
      ddp.registerCommHook(null, (_, bucket) => ones([bucket.buffer().numel()]).double().mul(3));
      const seen: Tensor[] = [];
      for (const p of ddp.parameters())
        p.registerPostAccumulateGradHook((t) => seen.push((t.grad as Tensor).clone()));
      pass((x) => ddp(x), shardOf(batchOf(0), rank, 2));
      assert.equal(seen.length, [...ddp.parameters()].length);
      for (const grad of seen) assert.equal((await grad.sub(3).abs().sum().read())[0], 0);
    }),
  );

  it(
    'see the gradient of this rank in noSync and below the wrapper, and the average after it',
    withRanks(2, async (rank) => {
      const sums = async (wrap: boolean): Promise<number[]> => {
        const model = modelOf();
        const ddp = wrap ? new DistributedDataParallel(model, small) : null;
        const seen: Tensor[] = [];
        model.head.weight.registerPostAccumulateGradHook((t) => {
          seen.push((t.grad as Tensor).detach().sum());
        });
        const own = shardOf(batchOf(0), rank, 2);
        if (ddp === null) pass((x) => model(x), own);
        else ddp.noSync(() => pass((x) => ddp(x), own));
        model.zeroGrad();
        pass((x) => model(x), own);
        model.zeroGrad();
        if (ddp === null) pass((x) => model(x), batchOf(0));
        else pass((x) => ddp(x), own);
        return (await Promise.all(seen.map((t) => t.read()))).map(([sum]) => Number(sum));
      };
      const [expected, found] = [await sums(false), await sums(true)];
      assert.equal(found.length, 3);
      assertSame([found], [expected]);
    }),
  );

  it(
    'run on all ranks for a parameter that one of them has used',
    withRanks(2, async (rank) => {
      manualSeed(0);
      const ddp = new DistributedDataParallel(new Branches(), { findUnusedParameters: true });
      stepInHooks(ddp);
      const before = await valuesOf(ddp);
      for (let step = 0; step < 3; step++) ddp(row(), rank).sum().backward();
      const after = await valuesOf(ddp);
      assert.ok(after.slice(0, 4).every((values, i) => values[0] !== before[i]?.[0]));
      const sums = ones([1]).mul(after.flat().reduce((a, b) => a + b));
      const own = sums.clone();
      allReduce(sums, { op: 'avg' });
      assert.deepEqual([...(await sums.read())], [...(await own.read())]);
    }),
  );

  it(
    'step while ranks have inputs, in join()',
    withRanks(2, async (rank) => {
      const ddp = new DistributedDataParallel(modelOf(), small);
      stepInHooks(ddp);
      await ddp.join(() => {
        for (let step = 0; step < 2 + 2 * rank; step++)
          pass((x) => ddp(x), shardOf(batchOf(step), rank, 2));
      });
      const alone = modelOf();
      stepInHooks(alone);
      for (let step = 0; step < 4; step++) {
        const x = step < 2 ? batchOf(step) : shardOf(batchOf(step), 1, 2);
        const loss = alone(x).square().mean();
        (step < 2 ? loss : loss.div(2)).backward();
      }
      assertSame(await valuesOf(ddp), await valuesOf(alone));
    }),
  );

  it(
    'that throw leave the next step right',
    withRanks(2, async (rank) => {
      const ddp = new DistributedDataParallel(modelOf(), small);
      const [first] = ddp.parameters();
      const failing = (first as nn.Parameter).registerPostAccumulateGradHook(() => {
        throw new Error('of the hook');
      });
      assert.throws(() => pass((x) => ddp(x), shardOf(batchOf(9), rank, 2)), /of the hook/);
      failing.remove();
      ddp.zeroGrad();
      stepInHooks(ddp);
      assertSame(
        await trained(
          (x) => ddp(x),
          ddp,
          (x) => shardOf(x, rank, 2),
        ),
        await alone(),
      );
    }),
  );

  it(
    'run once in a pass where two wrappers of a module reduce, and see the average',
    withRanks(2, async (rank) => {
      const model = modelOf();
      const wrappers = [0, 1].map(() => new DistributedDataParallel(model, small));
      let sum = ones([1]).double().sub(1);
      let calls = 0;
      model.head.weight.registerPostAccumulateGradHook((t) => {
        calls++;
        noGrad(() => {
          sum = sum.add((t.grad as Tensor).sum());
        });
      });
      const losses = wrappers.map((ddp) =>
        ddp(shardOf(batchOf(0), rank, 2))
          .square()
          .mean(),
      );
      (losses[0] as Tensor).add(losses[1] as Tensor).backward();
      assert.equal(calls, 1);
      const expected = modelOf();
      pass((x) => expected(x), batchOf(0));
      const wanted = (expected.head.weight.grad as Tensor).sum().mul(2);
      assertSame([[...(await sum.read())] as number[]], [[...(await wanted.read())] as number[]]);
    }),
  );
});
