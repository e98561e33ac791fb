/**
 * CommDebugMode: kinds, bytes, causes and modules of collectives.
 */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  allReduce,
  barrier,
  CommDebugMode,
  DTensor,
  distributeTensor,
  initDeviceMesh,
  Partial,
  Replicate,
  Shard,
} from '../../../lib/distributed.js';
import { float32, manualSeed, nn, ones, randn, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';

const meshOf = (ranks: number) => initDeviceMesh('cpu', [ranks], { meshDimNames: ['tp'] });

describe('CommDebugMode', () => {
  it(
    'counts collectives, payload bytes, and the bytes that a ring sends',
    withRanks(4, async (rank) => {
      const mesh = meshOf(4);
      const comm = new CommDebugMode();
      const bytes = 6 * 8 * 4;
      comm.run(() => {
        const t = distributeTensor(ones([6, 8]), mesh, [Shard(0)], { srcDataRank: null });
        t.redistribute([Replicate()]);
        t.redistribute([Shard(1)]);
        const terms = DTensor.fromLocal(ones([6, 8]), mesh, [Partial()]);
        terms.redistribute([Shard(0)]);
        terms.redistribute([Replicate()]);
        barrier();
      });
      const [rows, ofNext] = [
        [2, 2],
        [2, 2],
        [2, 0],
        [0, 2],
      ][rank] as [number, number];
      assert.deepEqual(
        comm.events.map(({ kind, bytes: size, sentBytes, meshDim }) => [
          kind,
          size,
          sentBytes,
          meshDim,
        ]),
        [
          // All rows but those that the next rank began with; all but one's own.
          ['allGather', bytes, (6 - ofNext) * 8 * 4, 'tp'],
          // Each rank keeps two of the eight columns of its rows.
          ['allToAll', Math.max(rows * 8, 6 * 2) * 4, rows * 6 * 4, 'tp'],
          ['reduceScatter', bytes, (6 - rows) * 8 * 4, 'tp'],
          ['allReduce', bytes, (bytes * 6) / 4, 'tp'],
          ['barrier', 0, 0, null],
        ],
      );
      assert.deepEqual(comm.getCommCounts(), {
        allGather: 1,
        allToAll: 1,
        reduceScatter: 1,
        allReduce: 1,
        barrier: 1,
      });
      assert.equal(comm.getTotalCounts(), 5);
      assert.equal(
        comm.getCommBytes().bytes,
        comm.events.reduce((sum, event) => sum + event.bytes, 0),
      );
      comm.reset();
      assert.deepEqual([comm.getTotalCounts(), String(comm)], [0, 'no collectives']);
    }),
  );

  it(
    'records the cause: an explicit redistribution, the input of an op, or null for direct calls',
    withRanks(2, async () => {
      const mesh = meshOf(2);
      const t = distributeTensor(ones([4, 4]), mesh, [Shard(0)]);
      const ofTerms = DTensor.fromLocal(ones([4, 4]), mesh, [Partial()]);
      const comm = new CommDebugMode();
      comm.run(function reads() {
        t.fullTensor();
        for (let i = 0; i < 2; i++) t.add(ofTerms);
        t.redistribute([Replicate()]);
        allReduce(ones([2]));
      });
      const [redistribute, add] = [
        'redistribute from [Shard(0)] to [Replicate()]',
        'add: input 1 from [Partial(sum)] to [Shard(0)]',
      ];
      assert.deepEqual(
        comm.events.map((event) => event.cause),
        [redistribute, add, add, redistribute, null],
      );
      assert.equal(comm.events.at(-1)?.name, 'allReduce');
      for (const { where } of comm.events)
        assert.match(where, /^reads \(.*comm-debug-mode\.test\.[jt]s:\d+:\d+\)$/);
      assert.match(
        String(comm),
        /^collective +calls +bytes +sent +along +phase +module +cause +where\n/,
      );
      // The two reductions for the sums are one line.
      assert.equal(String(comm).split('\n').length, comm.getTotalCounts());
      assert.match(String(comm), /\nreduceScatter +2 +128 +64 +tp +forward +add: input 1/);
    }),
  );

  it(
    'names the function that the program called before the op inside it that communicates',
    withRanks(2, async () => {
      const mesh = meshOf(2);
      const t = distributeTensor(ones([4, 4]), mesh, [Shard(0)]);
      const terms = DTensor.fromLocal(ones([4, 4]), mesh, [Partial()]);
      const causesOf = (call: () => unknown): (string | null)[] => {
        const comm = new CommDebugMode();
        comm.run(call);
        return comm.events.map((event) => event.cause);
      };
      assert.deepEqual(
        causesOf(() => t.softmax(0)),
        [
          'softmax, in sub: input 1 from [Partial(max)] to [Replicate()]',
          'softmax, in div: input 1 from [Partial(sum)] to [Replicate()]',
        ],
      );
      // Which is made of logsumexp in turn, and that of others.
      assert.deepEqual(
        causesOf(() => t.logSoftmax(0)),
        [
          'logSoftmax, in redistribute from [Partial(max)] to [Replicate()]',
          'logSoftmax, in log: input 0 from [Partial(sum)] to [Replicate()]',
        ],
      );
      assert.deepEqual(
        causesOf(() => terms.logit()),
        [
          'logit, in log: input 0 from [Partial(sum)] to [Replicate()]',
          'logit, in log1p: input 0 from [Partial(sum)] to [Replicate()]',
        ],
      );
      assert.deepEqual(
        causesOf(() => new nn.Softmin(0)(t)),
        causesOf(() => t.neg().softmax(0)),
      );
    }),
  );

  it(
    'records the module path in forward and in backward',
    withRanks(2, async () => {
      manualSeed(0);
      const mesh = meshOf(2);
      const model = new nn.Sequential(new nn.Linear(4, 4), new nn.ReLU(), new nn.Linear(4, 4));
      for (const [i, p] of [...model.parameters()].entries())
        p.data = distributeTensor(p.detach(), mesh, [i < 3 ? Shard(i < 2 ? 0 : 1) : Replicate()]);
      const x = DTensor.fromLocal(randn([3, 4]), mesh).requiresGrad_();
      const comm = new CommDebugMode();
      comm.run(() => {
        const out = model(x).redistribute([Replicate()]);
        out.sum().backward();
      });
      assert.deepEqual(
        comm.events.map(({ kind, phase, modulePath }) => [kind, phase, modulePath]),
        // The gradient of the input is reduced where it arrives, for who used it.
        [
          ['allReduce', 'forward', null],
          ['allReduce', 'backward', '0'],
        ],
      );
      comm.reset();
      comm.run(() => new nn.Sequential(new nn.Softmax(0))(x.detach().redistribute([Shard(0)])));
      assert.deepEqual([...new Set(comm.events.map((event) => event.modulePath))], ['0']);
    }),
  );

  it(
    'stays on across await, only on its own rank, and ends with the using block',
    withRanks(3, async (rank) => {
      const mesh = meshOf(3);
      const comm = new CommDebugMode();
      const sum = await comm.run(async () => {
        await sleep(5 * rank);
        const t = DTensor.fromLocal(ones([2]), mesh, [Partial()]);
        return [...(await t.fullTensor().read())];
      });
      assert.deepEqual([sum, comm.getTotalCounts()], [[3, 3], 1]);
      {
        using _ = comm.enter();
        assert.throws(
          () => comm.enter(),
          /CommDebugMode: expected a mode that is off, got one that is on already/,
        );
        allReduce(ones([1]));
      }
      allReduce(ones([1]));
      assert.equal(comm.getTotalCounts(), 2);
      const [outer, inner] = [new CommDebugMode(), new CommDebugMode()];
      outer.run(() => inner.run(() => allReduce(ones([1], { dtype: float32 }))));
      assert.deepEqual([outer.getTotalCounts(), inner.getTotalCounts()], [1, 1]);
      assert.throws(() =>
        inner.run((): Tensor => {
          throw new Error('stop');
        }),
      );
      allReduce(ones([1]));
      assert.equal(inner.getTotalCounts(), 1);
      await assert.rejects(inner.run(() => Promise.reject(new Error('stop'))));
      allReduce(ones([1]));
      assert.equal(inner.getTotalCounts(), 1);
    }),
  );
});
