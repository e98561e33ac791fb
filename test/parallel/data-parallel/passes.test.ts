/** Any order of forward and backward passes gives all ranks the same gradients. Reference: PyTorch. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { DistributedDataParallel, launch } from '../../../lib/distributed.js';
import { manualSeed, nn, optim, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import { assertSame, Branches, batchOf, Model, row, shardOf, valuesOf } from './models.js';

type Net = nn.Module<[x: Tensor], Tensor>;

const gradsOf = (model: nn.AnyModule): Promise<number[][]> =>
  Promise.all(
    [...model.parameters()].map(
      async ({ grad }) => (grad === null ? [] : [...(await grad.contiguous().read())]) as number[],
    ),
  );

function modelOf(): Model {
  manualSeed(0);
  return new Model().double();
}

const variants = {
  views: {},
  copies: { gradientAsBucketView: false },
  findUnusedParameters: { findUnusedParameters: true },
  staticGraph: { staticGraph: true },
};

describe('passes of DistributedDataParallel', () => {
  for (const [name, options] of Object.entries(variants)) {
    it(
      `reduce in each of two backward passes after two forward passes (${name})`,
      withRanks(2, async (rank) => {
        const run = async (model: Net, shard: (x: Tensor) => Tensor, zero: boolean) => {
          for (let step = 0; step < 2; step++) {
            const losses = [0, 1].map((at) =>
              model(shard(batchOf(at)))
                .square()
                .mean(),
            );
            for (const loss of losses) {
              if (zero) model.zeroGrad();
              loss.backward();
            }
          }
          return gradsOf(model);
        };
        for (const zero of [false, true]) {
          const ddp = new DistributedDataParallel(modelOf(), { bucketCapMb: 0.0005, ...options });
          assertSame(
            await run(ddp, (x) => shardOf(x, rank, 2), zero),
            await run(modelOf(), (x) => x, zero),
          );
        }
      }),
    );

    it(
      `reduce gradients of parameters that were converted between steps (${name})`,
      withRanks(2, async (rank) => {
        const run = async (model: Net, shard: (x: Tensor) => Tensor) => {
          for (const dtype of ['float64', 'float32', 'float64'] as const) {
            model.to(dtype);
            const loss = model(shard(batchOf(0)).to(dtype))
              .square()
              .mean();
            loss.backward();
          }
          return gradsOf(model);
        };
        manualSeed(0);
        const ddp = new DistributedDataParallel(new Model(), { bucketCapMb: 0.0005, ...options });
        manualSeed(0);
        const expected = await run(new Model(), (x) => x);
        const grads = await run(ddp, (x) => shardOf(x, rank, 2));
        for (const [i, grad] of grads.entries())
          grad.forEach((value, at) => {
            const wanted = expected[i]?.[at] as number;
            assert.ok(Math.abs(value - wanted) < 1e-5, `${value}, expected ${wanted}`);
          });
      }),
    );

    it(
      `reduce in a second backward pass of one forward pass (${name})`,
      withRanks(2, async (rank) => {
        const run = async (model: Net, shard: (x: Tensor) => Tensor) => {
          for (let step = 0; step < 2; step++) {
            const loss = model(shard(batchOf(step)))
              .square()
              .mean();
            loss.backward(null, { retainGraph: true });
            loss.backward();
          }
          return gradsOf(model);
        };
        const ddp = new DistributedDataParallel(modelOf(), { bucketCapMb: 0.0005, ...options });
        assertSame(await run(ddp, (x) => shardOf(x, rank, 2)), await run(modelOf(), (x) => x));
      }),
    );
  }

  it('accumulate like one device, whatever their order', async function () {
    this.timeout(60_000);
    const pass = fc.record({
      syncs: fc.boolean(),
      after: fc.array(fc.record({ graph: fc.nat({ max: 5 }), together: fc.boolean() }), {
        maxLength: 3,
      }),
    });
    const passes = fc.array(pass, { minLength: 1, maxLength: 5 });
    await fc.assert(
      fc.asyncProperty(
        passes,
        fc.constantFrom(...Object.values(variants)),
        async (all, options) => {
          const run = (
            model: Net,
            shard: (x: Tensor) => Tensor,
            noSync: (fn: () => void) => void,
          ) => {
            const losses: Tensor[] = [];
            const forward = (): void =>
              void losses.push(
                model(shard(batchOf(losses.length)))
                  .square()
                  .mean(),
              );
            for (const { syncs, after } of all) {
              if (syncs) forward();
              else noSync(forward);
              for (const { graph, together } of after) {
                const loss = losses[graph % losses.length] as Tensor;
                const other = losses.at(-1) as Tensor;
                (together ? loss.add(other) : loss).backward(null, { retainGraph: true });
              }
            }
            forward();
            losses.at(-1)?.backward();
            return gradsOf(model);
          };
          const expected = await run(
            modelOf(),
            (x) => x,
            (fn) => fn(),
          );
          await launch(2, async (rank) => {
            const ddp = new DistributedDataParallel(modelOf(), { bucketCapMb: 0.0005, ...options });
            const noSync = (fn: () => void): void => ddp.noSync(fn);
            assertSame(await run(ddp, (x) => shardOf(x, rank, 2), noSync), expected);
          });
        },
      ),
      { numRuns: 30 },
    );
  });

  it(
    'find the unused parameters of each backward pass with findUnusedParameters',
    withRanks(2, async () => {
      for (const form of ['sum', 'apart', 'twice'] as const) {
        const ddp = new DistributedDataParallel(new Branches(), { findUnusedParameters: true });
        for (let step = 0; step < 2; step++) {
          ddp.zeroGrad();
          const [a, b] = [0, 2].map((branch) => ddp(row(), branch).sum()) as [Tensor, Tensor];
          if (form === 'sum') a.add(b).backward();
          if (form === 'apart') [a, b].forEach((loss) => loss.backward());
          if (form === 'twice')
            [true, false].forEach((retainGraph) => a.add(b).backward(null, { retainGraph }));
          const each = form === 'twice' ? 2 : 1;
          const grads = (await gradsOf(ddp)).map(([first]) => first);
          assert.deepEqual(grads, [each, each, 0, 0, each, each], form);
        }
      }
    }),
  );

  it(
    'are refused if they are a second one and the outputs were hidden in a private field',
    withRanks(1, () => {
      class Hidden {
        readonly #loss: Tensor;
        constructor(loss: Tensor) {
          this.#loss = loss;
        }
        get loss(): Tensor {
          return this.#loss;
        }
      }
      class Hiding extends nn.Module<[x: Tensor], Hidden> {
        inner = new Model();
        forward(x: Tensor): Hidden {
          return new Hidden(this.inner(x).sum());
        }
      }
      const ddp = new DistributedDataParallel(new Hiding().double());
      const { loss } = ddp(batchOf(0));
      loss.backward(null, { retainGraph: true });
      assert.throws(
        () => loss.backward(),
        /"inner\.\S+" received a gradient .* second backward pass, return the outputs .* in arrays/,
      );
      ddp(batchOf(0)).loss.backward();
      ddp.noSync(() => ddp(batchOf(0)).loss.backward());
    }),
  );
});

describe('parameters that are frozen or unfrozen after DistributedDataParallel was made', () => {
  for (const [name, options] of Object.entries(variants))
    it(
      `train like those of one device (${name})`,
      withRanks(2, async (rank) => {
        const run = (net: Net, model: Model, shard: (x: Tensor) => Tensor) => {
          model.first.requiresGrad_(false);
          const sgd = new optim.SGD(net.parameters(), { lr: 0.1, weightDecay: 0.1 });
          const frozen = [
            [model.first],
            [model.first, model.head],
            [],
            [model.second.norm],
            [model.second.norm],
            [model.first, model.second],
          ];
          for (const [step, modules] of frozen.entries()) {
            model.requiresGrad_(true);
            for (const each of modules) each.requiresGrad_(false);
            net(shard(batchOf(step)))
              .square()
              .mean()
              .backward();
            sgd.step();
            sgd.zeroGrad({ setToNone: step % 2 === 0 });
          }
          return valuesOf(net);
        };
        const [one, model] = [modelOf(), modelOf()];
        model.first.requiresGrad_(false);
        const ddp = new DistributedDataParallel(model, { bucketCapMb: 0.0005, ...options });
        assertSame(
          await run(ddp, model, (x) => shardOf(x, rank, 2)),
          await run(one, one, (x) => x),
        );
      }),
    );

  it('are an error with their names if the ranks differ in them', async () => {
    const run = launch(2, async (rank) => {
      const model = modelOf();
      const ddp = new DistributedDataParallel(model);
      ddp(batchOf(0)).sum().backward();
      if (rank === 1) model.second.norm.requiresGrad_(false);
      ddp(batchOf(0)).sum().backward();
      await model.head.weight.grad?.read();
    });
    await assert.rejects(
      run,
      /of the gradients of [\s\S]*second\.norm\.bias[\s\S]*freeze the same parameters/,
    );
  });

  it(
    'are an error with their names if other ones took their places',
    withRanks(1, () => {
      const model = modelOf();
      const ddp = new DistributedDataParallel(model);
      ddp(batchOf(0)).sum().backward();
      model.head = new nn.Linear(6, 3).double();
      assert.throws(
        () => ddp(batchOf(0)),
        /"head\.weight" was replaced or added .*new DistributedDataParallel/,
      );
    }),
  );
});
