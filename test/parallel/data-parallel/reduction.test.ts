/** How gradients get into buckets and are reduced. */
import assert from 'node:assert/strict';
import { FakeTensorMode } from '../../../lib/compile/index.js';
import {
  allReduce,
  allreduceHook,
  bf16CompressHook,
  CommDebugMode,
  DistributedDataParallel,
  destroyProcessGroup,
  fp16CompressHook,
  type GradBucket,
  initProcessGroup,
  newGroup,
} from '../../../lib/distributed.js';
import { library, memory, nn, noGrad, randn, type Tensor, tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import { Branches, row } from './models.js';

describe('the reduction of DistributedDataParallel', () => {
  it(
    'starts the reduction of a bucket before later gradients have come, in the same order on all ranks',
    withRanks(2, () => {
      const model = new nn.Sequential(...Array.from({ length: 4 }, () => new nn.Linear(3, 3)));
      const events: string[] = [];
      for (const [name, p] of model.namedParameters())
        p.registerPostAccumulateGradHook(() => void events.push(name));
      const ddp = new DistributedDataParallel(model, { bucketCapMb: 0.00001 });
      ddp.registerCommHook(null, (group: null, bucket: GradBucket) => {
        events.push(`bucket ${bucket.index()}${bucket.isLast() ? ', the last' : ''}`);
        return allreduceHook(group, bucket);
      });
      for (let step = 0; step < 2; step++) {
        events.length = 0;
        ddp(randn([2, 3]))
          .sum()
          .backward();
        const at = (event: string): number => events.indexOf(event);
        assert.ok(at('bucket 0') < at('2.weight') && at('bucket 1') < at('2.weight'));
        assert.ok(at('bucket 4') < at('0.weight'));
        const buckets = events.filter((event) => event.startsWith('bucket'));
        assert.deepEqual(
          buckets,
          [0, 1, 2, 3, 4, 5, 6, '7, the last'].map((i) => `bucket ${i}`),
        );
      }
    }),
  );

  it(
    'shows gradients in the buckets, in the layout of the parameter',
    withRanks(2, async (rank) => {
      const model = new nn.Linear(3, 4);
      model.weight = new nn.Parameter(randn([3, 4]).t());
      const ddp = new DistributedDataParallel(model);
      ddp(tensor([[rank, rank, rank]]))
        .sum()
        .backward();
      const { grad } = model.weight;
      assert.deepEqual(grad?.stride(), model.weight.stride());
      assert.equal(grad?.untypedStorage(), model.bias?.grad?.untypedStorage());
      assert.deepEqual([...(await (grad as Tensor).contiguous().read())], new Array(12).fill(0.5));
    }),
  );

  it(
    'copies each gradient once, into its bucket, and keeps no other memory for it',
    withRanks(1, () => {
      const model = new nn.Sequential(...Array.from({ length: 8 }, () => new nn.Linear(256, 256)));
      const ddp = new DistributedDataParallel(model, { bucketCapMb: 0.5 });
      const x = randn([4, 256]);
      const step = (): void => {
        ddp(x).sum().backward();
        ddp.zeroGrad();
      };
      step();
      step();
      memory.collect();
      const before = memory.stats().allocatedBytes;
      memory.resetPeak();
      step();
      const growth = memory.stats().peakAllocatedBytes - before;
      assert.ok(growth < 3 * 256 * 256 * 4, `${growth} bytes beside the buckets`);
      const writes: string[] = [];
      const loss = ddp(x).sum();
      library.withDispatchMode(
        (call) => {
          if (call.isInPlace) writes.push(call.op);
          return call.run();
        },
        () => loss.backward(),
      );
      assert.deepEqual(
        writes.filter((op) => op === 'copy'),
        [...model.parameters()].map(() => 'copy'),
      );
      for (const { grad } of model.parameters()) assert.ok(grad?._base === null);
    }),
  );

  it('moves the bytes of all gradients once, whatever the number of ranks', async () => {
    await initProcessGroup('fake', { rank: 5, worldSize: 1000 });
    try {
      new FakeTensorMode().run(() => {
        const model = new nn.Sequential(new nn.Linear(1024, 1024), new nn.Linear(1024, 1024));
        const ddp = new DistributedDataParallel(model);
        const comm = new CommDebugMode();
        comm.run(() =>
          ddp(randn([8, 1024]))
            .sum()
            .backward(),
        );
        assert.deepEqual(comm.getCommCounts(), { allReduce: 2 });
        assert.equal(comm.getCommBytes().bytes, 2 * 1025 * 1024 * 4);
      });
    } finally {
      destroyProcessGroup();
    }
  });

  it(
    'averages zeros for parameters that a rank does not use, with findUnusedParameters',
    withRanks(2, async (rank) => {
      const ddp = new DistributedDataParallel(new Branches(), {
        findUnusedParameters: true,
        bucketCapMb: 0.00001,
      });
      for (let step = 0; step < 3; step++) {
        ddp(row(), rank).sum().backward();
        const grads = await Promise.all(
          [...ddp.parameters()].map(async (p) => (await (p.grad as Tensor).read())[0]),
        );
        assert.deepEqual(grads, [0.5, 0.5, 0.5, 0.5, 0, 0]);
        ddp.zeroGrad();
      }
    }),
  );

  it(
    'looks for unused parameters once with staticGraph, and refuses another graph',
    withRanks(2, async () => {
      const ddp = new DistributedDataParallel(new Branches(), { staticGraph: true });
      for (let step = 0; step < 2; step++) ddp(row(), 1).sum().backward();
      const loss = ddp(row(), 0).sum();
      assert.throws(() => loss.backward(), /"branches\.0\.\w+" received a gradient.*staticGraph/);
    }),
  );

  it(
    'copies the buffers of rank 0 in each forward, unless broadcastBuffers is false',
    withRanks(2, async (rank) => {
      for (const broadcastBuffers of [true, false]) {
        const model = new nn.BatchNorm1d(2);
        const ddp = new DistributedDataParallel(model, { broadcastBuffers });
        ddp(randn([4, 2]).add(rank))
          .sum()
          .backward();
        noGrad(() => (model.running_mean as Tensor).fill_(rank + 1));
        ddp.eval();
        ddp(randn([4, 2]));
        const mean = (await (model.running_mean as Tensor).read())[0];
        assert.equal(mean, broadcastBuffers ? 1 : rank + 1);
      }
    }),
  );

  it(
    'reduces by a hook that compresses, and gives the average to .grad',
    withRanks(2, async (rank) => {
      for (const hook of [fp16CompressHook, bf16CompressHook]) {
        for (const gradientAsBucketView of [true, false]) {
          const ddp = new DistributedDataParallel(new nn.Linear(2, 1), { gradientAsBucketView });
          ddp.registerCommHook(null, hook);
          ddp(tensor([[rank + 1, 3]]))
            .sum()
            .backward();
          const { grad } = (ddp.module as nn.Linear).weight;
          assert.deepEqual([...(await (grad as Tensor).read())], [1.5, 3]);
          assert.equal(grad?.dtype.name, 'float32');
          assert.throws(() => ddp.registerCommHook(null, hook), /already/);
        }
      }
      const wrong = new DistributedDataParallel(new nn.Linear(2, 1));
      wrong.registerCommHook(null, () => tensor([1]));
      assert.throws(() => wrong(row()).sum().backward(), /return the reduced tensor of 6 elements/);
    }),
  );

  it(
    'reduces over the ranks of a group',
    withRanks(4, async (rank) => {
      const pairs = [newGroup([0, 1]), newGroup([2, 3])];
      const processGroup = pairs[Math.floor(rank / 2)] as (typeof pairs)[0];
      const ddp = new DistributedDataParallel(new nn.Linear(1, 1), { processGroup });
      ddp(tensor([[rank]]))
        .sum()
        .backward();
      const { weight } = ddp.module as nn.Linear;
      assert.equal((await (weight.grad as Tensor).read())[0], rank < 2 ? 0.5 : 2.5);
      const t = weight.detach().clone();
      allReduce(t, { op: 'max', group: processGroup });
      assert.equal((await t.read())[0], (await weight.detach().read())[0]);
    }),
  );
});
