/** Errors of data parallel training, and steps after them. */
import assert from 'node:assert/strict';
import { DistributedDataParallel, launch } from '../../../lib/distributed.js';
import { manualSeed, nn, randn, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import { assertSame, Branches, batchOf, Model, row, shardOf } from './models.js';

describe('an error of DistributedDataParallel', () => {
  it(
    'names the parameters that were unused, in the next forward',
    withRanks(2, () => {
      const ddp = new DistributedDataParallel(new Branches());
      ddp(row(), 1).sum().backward();
      assert.throws(
        () => ddp(row(), 1),
        /prior iteration.*branches\.0\.weight, branches\.0\.bias, branches\.2\.weight, branches\.2\.bias\. Pass \{ findUnusedParameters: true \}/,
      );
    }),
  );

  it('reports models that differ from rank to rank', async () => {
    const run = launch(2, async (rank) => {
      const ddp = new DistributedDataParallel(new nn.Linear(2, rank + 3));
      await [...ddp.module.parameters()][0]?.detach().read();
    });
    await assert.rejects(
      run,
      /"weight", float32\[[34], 2\], tensor 1 of 2[\s\S]*"weight", float32\[[34], 2\]/,
    );
  });

  it('reports buckets that differ from rank to rank', async () => {
    const run = launch(2, async (rank) => {
      class Either extends nn.Module {
        a = new nn.Linear(2, 2, { bias: false });
        b = new nn.Linear(2, 2, { bias: false });
        forward(x: Tensor): Tensor {
          return rank === 0 ? this.b(this.a(x)) : this.a(this.b(x));
        }
      }
      const ddp = new DistributedDataParallel(new Either(), { bucketCapMb: 0.00001 });
      for (let step = 0; step < 2; step++) ddp(row()).sum().backward();
      await (ddp.module as Either).a.weight.grad?.read();
    });
    await assert.rejects(
      run,
      /of the gradients of the model, number 1 of its group: [ab]\.weight, bucket 0 of 2[\s\S]*findUnusedParameters: true/,
    );
  });

  it(
    'goes on after an error in forward and in backward',
    withRanks(2, async (rank) => {
      let fails = '';
      class Failing extends Model {
        override forward(x: Tensor): Tensor {
          if (fails === 'forward') throw new RangeError('forward');
          const y = this.second(this.first(x));
          y.registerHook(() => {
            if (fails === 'backward') throw new RangeError('backward');
          });
          return this.head(y);
        }
      }
      manualSeed(0);
      const ddp = new DistributedDataParallel(new Failing().double(), { bucketCapMb: 0.0005 });
      const step = (): void => {
        ddp(shardOf(batchOf(0), rank, 2))
          .square()
          .mean()
          .backward();
      };
      for (const where of ['forward', 'backward', 'forward', 'backward']) {
        fails = where;
        assert.throws(step, RangeError);
        ddp.zeroGrad();
        fails = '';
        step();
        const grads = await Promise.all(
          [...ddp.parameters()].map(
            async (p) => [...(await (p.grad as Tensor).read())] as number[],
          ),
        );
        ddp.zeroGrad();
        manualSeed(0);
        const one = new Model().double();
        one(batchOf(0)).square().mean().backward();
        assertSame(
          grads,
          await Promise.all(
            [...one.parameters()].map(
              async (p) => [...(await (p.grad as Tensor).read())] as number[],
            ),
          ),
        );
      }
    }),
  );

  it(
    'trains what is not frozen, and refuses what it is not for',
    withRanks(1, () => {
      const model = new Model();
      model.first.requiresGrad_(false);
      const ddp = new DistributedDataParallel(model);
      ddp(randn([2, 6]))
        .sum()
        .backward();
      assert.equal(model.first.up.weight.grad, null);
      assert.ok(model.head.weight.grad);
      const wrong: [() => unknown, RegExp][] = [
        [() => new DistributedDataParallel(new nn.ReLU()), /parameters that require a gradient/],
        [() => new DistributedDataParallel(3 as never), /module to be an nn\.Module/],
        [() => new DistributedDataParallel(model, { bucketCapMb: 0 }), /bucketCapMb/],
        [() => new DistributedDataParallel(model, { join: true } as never), /no option "join"/],
      ];
      for (const [make, message] of wrong) assert.throws(make, message);
    }),
  );
});
