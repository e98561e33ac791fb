/** Collectives that move values, against a reference, for any group, sizes, layouts and dtypes. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  allGather,
  allGatherIntoTensor,
  allReduce,
  allToAll,
  allToAllSingle,
  barrier,
  broadcast,
  gather,
  irecv,
  isend,
  newGroup,
  type ProcessGroup,
  recv,
  reduceScatterTensor,
  scatter,
  send,
  type Work,
} from '../../../lib/distributed.js';
import {
  arange,
  bfloat16,
  bool,
  type DType,
  float16,
  float32,
  float64,
  int8,
  int16,
  int32,
  int64,
  type Tensor,
  tensor,
  uint8,
  zeros,
} from '../../../lib/index.js';
import {
  describeOverEngines,
  isOverGloo,
  type Layout,
  laidOut,
  layouts,
  onRanks,
  valuesOf,
} from '../support/on-ranks.js';

const dtypes = [float64, float32, float16, bfloat16, int64, int32, int16, int8, uint8, bool];

/** What rank `from` gives to `to`: numbers that every dtype holds and that say whose they are. */
const run = (from: number, to: number, count: number, dtype: DType): number[] =>
  Array.from({ length: count }, (_, i) =>
    dtype === bool ? (from + to + i) % 2 : (from * 25 + to * 5 + i) % 120,
  );

interface Case {
  worldSize: number;
  members: number[];
  /** Elements from each member to each. */
  counts: number[][];
  root: number;
  dtype: DType;
  input: Layout;
  output: Layout;
}

const sizes = fc.oneof(
  { weight: 12, arbitrary: fc.nat(9) },
  { weight: 1, arbitrary: fc.constantFrom(8300, 40_000) },
);
const cases = fc.constantFrom(1, 2, 3, 5).chain((worldSize) =>
  fc
    .shuffledSubarray(
      Array.from({ length: worldSize }, (_, i) => i),
      { minLength: 1 },
    )
    .chain((members) => {
      const each = { minLength: members.length, maxLength: members.length };
      return fc.record<Case>({
        worldSize: fc.constant(worldSize),
        members: fc.constant(members),
        counts: fc.array(fc.array(sizes, each), each),
        root: fc.nat(members.length - 1),
        dtype: fc.constantFrom(...dtypes),
        input: fc.constantFrom(...layouts),
        output: fc.constantFrom(...layouts),
      });
    }),
);

/** The tensors that a member writes, by the name of the collective, with what they should hold. */
function callAll(
  { members, counts, root, dtype, input, output }: Case,
  group: ProcessGroup,
): [string, Tensor, number[]][] {
  const me = group.rank;
  const all = members.map((_, i) => i);
  const given = (to: number, from = me): number[] =>
    run(from, to, (counts[from] as number[])[to] as number, dtype);
  const from = (values: number[]): Tensor => laidOut(values, dtype, input);
  const into = (count: number): Tensor => laidOut(Array<number>(count).fill(1), dtype, output);
  const rootRank = members[root] as number;
  const results: [string, Tensor, number[]][] = [];

  const shared = me === root ? from(given(0)) : into(given(0, root).length);
  broadcast(shared, rootRank, { group });
  results.push(['broadcast', shared, given(0, root)]);

  const gathered = all.map((r) => into(given(0, r).length));
  allGather(gathered, from(given(0)), { group });
  for (const r of all) results.push([`allGather ${r}`, gathered[r] as Tensor, given(0, r)]);

  const equal = (counts[0] as number[])[0] as number;
  const whole = into(equal * all.length);
  allGatherIntoTensor(whole, from(run(me, 0, equal, dtype)), { group });
  results.push(['allGatherIntoTensor', whole, all.flatMap((r) => run(r, 0, equal, dtype))]);

  const received = all.map((r) => into(given(me, r).length));
  allToAll(
    received,
    all.map((r) => from(given(r))),
    { group },
  );
  for (const r of all) results.push([`allToAll ${r}`, received[r] as Tensor, given(me, r)]);

  const [sent, came] = [all.map((r) => given(r)), all.map((r) => given(me, r))];
  const single = into(came.flat().length);
  allToAllSingle(single, from(sent.flat()), {
    group,
    inputSplitSizes: sent.map((x) => x.length),
    outputSplitSizes: came.map((x) => x.length),
  });
  results.push(['allToAllSingle', single, came.flat()]);

  // The other ranks must know the root's sizes only for scatter and gather of their own part.
  const lists =
    me === root
      ? {
          gatherList: all.map(() => into(equal)),
          scatterList: all.map((r) => from(run(root, r, equal, dtype))),
        }
      : {};
  gather(from(run(me, 1, equal, dtype)), {
    dst: rootRank,
    group,
    ...('gatherList' in lists ? { gatherList: lists.gatherList } : {}),
  });
  for (const [r, t] of ('gatherList' in lists ? (lists.gatherList ?? []) : []).entries())
    results.push([`gather ${r}`, t, run(r, 1, equal, dtype)]);
  const part = into(equal);
  scatter(part, {
    src: rootRank,
    group,
    ...('scatterList' in lists ? { scatterList: lists.scatterList } : {}),
  });
  results.push(['scatter', part, run(root, me, equal, dtype)]);

  // A ring: everybody sends to the next. Long messages wait for their receivers, so one member
  // receives first.
  const [next, before] = [(me + 1) % all.length, (me + all.length - 1) % all.length];
  if (all.length > 1) {
    const message = into(given(me, before).length);
    if (me === 0) recv(message, members[before] as number, { group });
    send(from(given(next)), members[next] as number, { group });
    if (me !== 0) recv(message, members[before] as number, { group });
    results.push(['recv', message, given(me, before)]);
  }
  return results;
}

describeOverEngines('a collective', () => {
  it("puts every rank's values where they belong, for random groups, sizes, layouts and dtypes", async () => {
    await fc.assert(
      fc.asyncProperty(cases, async (each) => {
        await onRanks(each.worldSize, async () => {
          const group = newGroup(each.members);
          if (group.rank < 0) return;
          for (const [name, t, expected] of callAll(each, group))
            assert.deepEqual(await valuesOf(t), expected, name);
        });
      }),
      { numRuns: isOverGloo() ? 25 : 80 },
    );
  });

  it('moves values of every dtype', async () => {
    for (const dtype of dtypes) {
      const members = [2, 0, 1];
      const each: Case = {
        worldSize: 3,
        members,
        counts: [
          [3, 0, 2],
          [1, 4, 0],
          [5, 5, 5],
        ],
        root: 2,
        dtype,
        input: 'strided',
        output: 'strided',
      };
      await onRanks(3, async () => {
        for (const [name, t, expected] of callAll(each, newGroup(members)))
          assert.deepEqual(await valuesOf(t), expected, `${name} of ${dtype.name}`);
      });
    }
  });

  it('takes tensors of any number of dims, and splits along dim 0', async () => {
    await onRanks(3, async (rank) => {
      const out = zeros([3, 2, 2]);
      allGatherIntoTensor(out, arange(4, { dtype: float32 }).reshape([1, 2, 2]).add(rank));
      assert.deepEqual(await valuesOf(out.sum([1, 2])), [6, 10, 14]);
      const stacked = zeros([3, 4]);
      allGatherIntoTensor(stacked, arange(4, { dtype: float32 }).add(rank));
      assert.deepEqual(await valuesOf(stacked.select(1, 0)), [0, 1, 2]);
      // rank r gives one row to ranks below it, and r + 1 to itself
      const rows = zeros([rank + 1 + 1 + 1, 2]);
      const split = [0, 1, 2].map((r) => (r < rank ? 1 : r === rank ? rank + 1 : 0));
      const from = [0, 1, 2].map((r) => (r > rank ? 1 : r === rank ? rank + 1 : 0));
      const total = (list: number[]): number => list.reduce((a, b) => a + b, 0);
      const input = zeros([total(split), 2]).add(rank);
      const output = rows.narrow(0, 0, total(from));
      allToAllSingle(output, input, { inputSplitSizes: split, outputSplitSizes: from });
      assert.deepEqual(
        await valuesOf(output.select(1, 1)),
        from.flatMap((count, r) => Array<number>(count).fill(r)),
      );
      const even = zeros([6]);
      allToAllSingle(even, arange(6, { dtype: float32 }).add(10 * rank));
      assert.deepEqual(
        await valuesOf(even),
        [0, 1, 2].flatMap((r) => [10 * r + 2 * rank, 10 * r + 2 * rank + 1]),
      );
    });
  });

  it('does not write between or around the elements of a strided output', async () => {
    await onRanks(2, async (rank) => {
      const around = zeros([4, 3]).sub(1);
      broadcast(around.select(1, 1), 0);
      const gathered = zeros([2, 4]).sub(1);
      allGather(
        [gathered.narrow(1, 0, 1).select(0, 0), gathered.narrow(1, 2, 1).select(0, 1)],
        tensor([rank + 5]),
      );
      assert.deepEqual(await valuesOf(around), Array<number>(12).fill(-1));
      assert.deepEqual(await valuesOf(gathered), [5, -1, -1, -1, -1, -1, 6, -1]);
    });
  });

  it('runs in place if the input is the output or a view of it', async () => {
    await onRanks(3, async (rank) => {
      const own = zeros([6]);
      const place = own.narrow(0, 2 * rank, 2);
      place.fill_(rank + 1);
      allGatherIntoTensor(own, place);
      assert.deepEqual(await valuesOf(own), [1, 1, 2, 2, 3, 3]);
      const shifted = arange(6, { dtype: float32 }).add(10 * rank);
      allGatherIntoTensor(shifted, shifted.narrow(0, 3, 2)); // no rank's own place
      assert.deepEqual(await valuesOf(shifted), [3, 4, 13, 14, 23, 24]);
      const halves = arange(30_000, { dtype: float32 });
      reduceScatterTensor(halves.narrow(0, 10_000 * rank, 10_000), halves);
      assert.equal((await valuesOf(halves))[10_000 * rank + 7], 3 * (10_000 * rank + 7));
      const swapped = arange(30_000, { dtype: float32 }).add(rank);
      allToAllSingle(swapped, swapped);
      const values = await valuesOf(swapped);
      for (const r of [0, 1, 2]) assert.equal(values[10_000 * r + 9], 10_000 * rank + 9 + r);
      const both = [zeros([2]).add(rank), zeros([2]).add(10 + rank), zeros([2]).add(20 + rank)];
      allToAll(both, [...both]);
      assert.deepEqual(
        await Promise.all(both.map(valuesOf)),
        [0, 1, 2].map((r) => [10 * rank + r, 10 * rank + r]),
      );
    });
  });

  it('changes values and version of a tensor that requires grad, without autograd history', async () => {
    await onRanks(2, async (rank) => {
      const leaf = tensor([1, 2]).requiresGrad_(true);
      const before = leaf._version;
      allReduce(leaf);
      assert.deepEqual(await valuesOf(leaf), [2, 4]);
      assert.ok(leaf._version > before && leaf.isLeaf && leaf.requiresGrad && leaf.gradFn === null);
      const middle = leaf.mul(3);
      const fn = middle.gradFn;
      broadcast(middle, 1);
      assert.ok(middle.gradFn === fn && middle.requiresGrad);
      const squared = leaf.mul(leaf);
      const list = [zeros([2]), zeros([2])];
      allGather(list, squared);
      assert.ok(list.every((t) => !t.requiresGrad));
      allReduce(leaf.detach());
      assert.throws(() => squared.sum().backward(), /in.?place/i, `rank ${rank}`);
      for (const t of [zeros([2, 2]).t(), zeros([4]).narrow(0, 1, 2)]) {
        const version = t._version;
        broadcast(t, 0);
        assert.ok(t._version > version);
      }
    });
  });

  it('runs within scopes, in several groups, and many times in a row', async () => {
    const totals = await onRanks(3, async (rank, size) => {
      const even = newGroup([0, 2]);
      const x = zeros([100]).add(rank);
      for (let i = 0; i < 50; i++) {
        allReduce(x, { op: 'avg' });
        if (even.rank >= 0) allReduce(x, { group: even, op: 'max' });
        x.add_(1);
      }
      await barrier();
      return x
        .sum()
        .itemAsync()
        .then((sum) => sum / size);
    });
    assert.ok(totals.every((total) => total === totals[0]));
  });
});

describeOverEngines('a Work handle', () => {
  it('reports completion and the outputs of its collective', async () => {
    await onRanks(2, async (rank) => {
      const x = tensor([rank + 1]);
      const work = allReduce(x, { asyncOp: true });
      assert.deepEqual(
        [work.isCompleted(), work.isSuccess(), work.exception()],
        [false, false, null],
      );
      assert.deepEqual(work.result(), [x]);
      await work.wait();
      await work.wait();
      assert.deepEqual(
        [work.isCompleted(), work.isSuccess(), work.exception()],
        [true, true, null],
      );
      assert.equal(await x.itemAsync(), 3);
    });
  });

  it('is returned by every collective with asyncOp', async () => {
    await onRanks(2, async (rank) => {
      const asyncOp = true;
      const pair = (): [Tensor, Tensor] => [zeros([1]), zeros([1])];
      const works: (Work | undefined)[] = [
        broadcast(zeros([1]), 0, { asyncOp }),
        allGather(pair(), zeros([1]), { asyncOp }),
        allGatherIntoTensor(zeros([2]), zeros([1]), { asyncOp }),
        reduceScatterTensor(zeros([1]), zeros([2]), { asyncOp }),
        allToAll(pair(), pair(), { asyncOp }),
        allToAllSingle(zeros([2]), zeros([2]), { asyncOp }),
        gather(zeros([1]), { asyncOp, ...(rank === 0 ? { gatherList: pair() } : {}) }),
        scatter(zeros([1]), { asyncOp, ...(rank === 0 ? { scatterList: pair() } : {}) }),
        rank === 0 ? isend(zeros([1]), 1) : irecv(zeros([1]), 0),
      ];
      for (const work of works) await work?.wait();
      assert.ok(works.every((work) => work?.isSuccess()));
      assert.equal(allReduce(zeros([1])), undefined);
    });
  });

  it('keeps the failure of its collective and throws it from wait()', async () => {
    await onRanks(2, async (rank) => {
      const work = allReduce(zeros([1 + rank]), { asyncOp: true });
      await assert.rejects(work.wait(), /allReduce/);
      assert.deepEqual([work.isCompleted(), work.isSuccess()], [true, false]);
      assert.match(String(work.exception()?.message), /called allReduce of/);
    });
  });
});
