/** `join`: ranks with different numbers of inputs. Reference: one model on all inputs of a step. */
import assert from 'node:assert/strict';
import {
  DistributedDataParallel,
  type DistributedDataParallelOptions,
  fp16CompressHook,
  type JoinOptions,
} from '../../../lib/distributed.js';
import { ArgumentError, manualSeed, nn, optim, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import { assertSame, batchOf, Model, valuesOf } from './models.js';

const RANKS = 3;
const inputOf = (rank: number, step: number): Tensor => batchOf(10 * step + rank);

function modelOf(): Model {
  manualSeed(0);
  return new Model().double();
}
const sgd = (model: nn.AnyModule): optim.SGD =>
  new optim.SGD(model.parameters(), { lr: 0.1, momentum: 0.5 });

/** Losses of all ranks that have inputs, divided as `join` does it. */
function reference(counts: readonly number[], byAll: boolean): Promise<number[][]> {
  const model = modelOf();
  const optimizer = sgd(model);
  for (let step = 0; step < Math.max(...counts); step++) {
    const active = counts.flatMap((count, rank) => (step < count ? [rank] : []));
    optimizer.zeroGrad();
    for (const rank of active)
      model(inputOf(rank, step))
        .square()
        .mean()
        .div(byAll ? RANKS : active.length)
        .backward();
    optimizer.step();
  }
  return valuesOf(model);
}

async function train(
  rank: number,
  counts: readonly number[],
  options: DistributedDataParallelOptions = {},
  joinOptions: JoinOptions = {},
): Promise<number[][]> {
  const ddp = new DistributedDataParallel(modelOf(), { bucketCapMb: 0.0005, ...options });
  const optimizer = sgd(ddp);
  const steps = await ddp.join(async () => {
    for (let step = 0; step < (counts[rank] as number); step++) {
      optimizer.zeroGrad();
      ddp(inputOf(rank, step)).square().mean().backward();
      optimizer.step();
    }
    return counts[rank];
  }, joinOptions);
  assert.equal(steps, counts[rank]);
  return valuesOf(ddp);
}

const variants: Record<string, DistributedDataParallelOptions> = {
  views: {},
  copies: { gradientAsBucketView: false },
  findUnusedParameters: { findUnusedParameters: true },
  staticGraph: { staticGraph: true },
};

const gradsOf = (model: nn.AnyModule): Promise<number[][]> =>
  Promise.all(
    [...model.parameters()].map(
      async ({ grad }) => [...(await (grad as Tensor).contiguous().read())] as number[],
    ),
  );

describe('join of DistributedDataParallel', () => {
  for (const [name, options] of Object.entries(variants))
    for (const counts of [
      [4, 1, 2],
      [0, 3, 3],
      [2, 2, 2],
    ])
      it(
        `trains on ${counts.join(', ')} inputs of ranks (${name})`,
        withRanks(RANKS, async (rank) => {
          assertSame(await train(rank, counts, options), await reference(counts, true));
        }),
      );

  it(
    'divides gradients by the number of ranks with inputs, if asked for',
    withRanks(RANKS, async (rank) => {
      const counts = [1, 4, 0];
      const own = await train(rank, counts, {}, { divideByInitialWorldSize: false });
      assertSame(own, await reference(counts, false));
    }),
  );

  it(
    'goes on after even steps, and before others',
    withRanks(RANKS, async (rank) => {
      const ddp = new DistributedDataParallel(modelOf(), { bucketCapMb: 0.0005 });
      const pass = (): void => {
        ddp.zeroGrad();
        ddp(inputOf(0, 0)).square().mean().backward();
      };
      pass();
      const expected = await gradsOf(ddp);
      await ddp.join(() => {
        for (let i = 0; i < rank; i++) pass();
      });
      for (let i = 0; i < 2; i++) {
        pass();
        assertSame(await gradsOf(ddp), expected);
      }
    }),
  );

  it(
    'leaves the gradients of a rank that has ended',
    withRanks(2, async (rank) => {
      const ddp = new DistributedDataParallel(modelOf());
      let before: number[][] = [];
      await ddp.join(async () => {
        for (let i = 0; i <= rank; i++) ddp(inputOf(rank, i)).square().mean().backward();
        before = await gradsOf(ddp);
      });
      assertSame(await gradsOf(ddp), before);
    }),
  );

  it(
    'accumulates in noSync, reduces in second passes and by hooks',
    withRanks(2, async (rank) => {
      const ddp = new DistributedDataParallel(modelOf(), { bucketCapMb: 0.0005 });
      ddp.registerCommHook(null, fp16CompressHook);
      const loss = (step: number): Tensor => ddp(inputOf(rank, step)).square().mean();
      await ddp.join(() => {
        if (rank === 0) return;
        ddp.noSync(() => loss(0).backward());
        const last = loss(1);
        last.backward({ retainGraph: true });
        last.backward();
      });
      assert.equal(
        [...ddp.parameters()].every(({ grad }) => (grad === null) === (rank === 0)),
        true,
      );
    }),
  );

  it(
    'gives the buffers of the first rank with inputs to all, and at the end those of the last',
    withRanks(RANKS, async (rank) => {
      const counts = [1, 3, 2];
      const norm = new nn.BatchNorm1d(6).double();
      const ddp = new DistributedDataParallel(norm);
      await ddp.join(() => {
        for (let step = 0; step < (counts[rank] as number); step++)
          ddp(inputOf(rank, step)).square().mean().backward();
      });
      const alone = new nn.BatchNorm1d(6).double();
      // After the first step, forwards begin with the buffers of rank 1.
      for (let step = 0; step < 3; step++) alone(inputOf(1, step));
      const [own, expected] = await Promise.all(
        [norm, alone].map((each) =>
          Promise.all(
            [...each.buffers()].map(
              async (t) => [...(await t.to('float64').reshape([-1]).read())] as number[],
            ),
          ),
        ),
      );
      assertSame(own as number[][], expected as number[][]);
    }),
  );

  it(
    'runs the function alone if it is not enabled, and is refused inside of itself',
    withRanks(1, async () => {
      const ddp = new DistributedDataParallel(modelOf());
      assert.equal(await ddp.join(() => 7, { enable: false }), 7);
      await assert.rejects(
        ddp.join(() => ddp.join(() => 1)),
        ArgumentError,
      );
      await assert.rejects(ddp.join(3 as never), ArgumentError);
      await assert.rejects(
        ddp.join(() => 1, { divide: true } as never),
        ArgumentError,
      );
      await assert.rejects(
        ddp.join(() => {
          throw new Error('of the program');
        }),
        /of the program/,
      );
      assert.equal(await ddp.join(() => 2), 2);
    }),
  );
});
