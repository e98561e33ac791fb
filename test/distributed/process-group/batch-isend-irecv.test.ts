/** `batchIsendIrecv`: batches never deadlock, whatever the order of their lists. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  barrier,
  batchIsendIrecv,
  CommDebugMode,
  DistributedError,
  destroyProcessGroup,
  initProcessGroup,
  irecv,
  isend,
  newGroup,
  P2POp,
  type ProcessGroup,
  recv,
  send,
  type Work,
} from '../../../lib/distributed.js';
import {
  ArgumentError,
  arange,
  float32,
  full,
  InPlaceError,
  int16,
  type Tensor,
  zeros,
} from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import {
  describeOverEngines,
  isOverGloo,
  laidOut,
  layouts,
  onRanks,
  valuesOf,
} from '../support/on-ranks.js';

/** More than any engine keeps of a message that nobody receives. */
const LONG = 150_000;
const allDone = (works: readonly Work[]): Promise<unknown> =>
  Promise.all(works.map((work) => work.wait()));

interface Message {
  readonly from: number;
  readonly to: number;
  readonly count: number;
}

/** Messages of a batch, and for each rank what its list is drawn by. */
const batches = fc.constantFrom(2, 3, 5).chain((worldSize) => {
  const counts = fc.oneof(
    { weight: 6, arbitrary: fc.nat(9) },
    { weight: 1, arbitrary: fc.constantFrom(40_000, LONG) },
  );
  const message = fc
    .record<Message>({ from: fc.nat(worldSize - 1), to: fc.nat(worldSize - 1), count: counts })
    .filter(({ from, to }) => from !== to);
  const messages = fc.array(message, { minLength: 1, maxLength: 8 });
  return fc.record({
    worldSize: fc.constant(worldSize),
    messages,
    seed: fc.nat(1000),
    layout: fc.constantFrom(...layouts),
  });
});

const valuesIn = (i: number, { count }: Message): number[] =>
  Array.from({ length: count }, (_, at) => (i * 7 + at) % 100);

/** The numbers from 0 in an order of the rank's own. */
function shuffled(length: number, seed: number): number[] {
  const order = Array.from({ length }, (_, i) => i);
  for (let i = length - 1; i > 0; i--) {
    const j = (seed * 31 + i * 17) % (i + 1);
    [order[i], order[j]] = [order[j] as number, order[i] as number];
  }
  return order;
}

/** Those of one direction stay in their order, by which sender and receiver know them. */
function listOf(rank: number, messages: readonly Message[], seed: number): number[] {
  const order = shuffled(messages.length, seed + rank);
  const next = new Map<string, number[]>();
  const way = (i: number): string => `${messages[i]?.from}>${messages[i]?.to}`;
  messages.forEach((_, i) => void next.set(way(i), [...(next.get(way(i)) ?? []), i]));
  return order
    .map((i) => next.get(way(i))?.shift() as number)
    .filter((i) => messages[i]?.from === rank || messages[i]?.to === rank);
}

describeOverEngines('batchIsendIrecv', () => {
  it('delivers random batches in any list order, with any sizes, dtypes and layouts', async () => {
    await fc.assert(
      fc.asyncProperty(batches, async ({ worldSize, messages, seed, layout }) => {
        await onRanks(worldSize, async (rank) => {
          const own = listOf(rank, messages, seed);
          if (own.length === 0) return barrier();
          const tensors = own.map((i) => {
            const each = messages[i] as Message;
            return laidOut(
              each.from === rank ? valuesIn(i, each) : Array<number>(each.count).fill(-1),
              int16,
              layout,
            );
          });
          const ops = own.map((i, at) => {
            const { from, to } = messages[i] as Message;
            return from === rank
              ? P2POp(isend, tensors[at] as Tensor, to)
              : P2POp(irecv, tensors[at] as Tensor, from);
          });
          const works = batchIsendIrecv(ops);
          assert.equal(works.length, ops.length);
          await allDone(works);
          await barrier(); // over gloo, a group needs all of its ranks
          for (const [at, i] of own.entries())
            assert.deepEqual(
              await valuesOf(tensors[at] as Tensor),
              valuesIn(i, messages[i] as Message),
            );
        });
      }),
      { numRuns: isOverGloo() ? 20 : 60 },
    );
  });

  it('exchanges messages of any size between two ranks and around a ring, sends or receives first', async () => {
    for (const worldSize of [2, 3, 4]) {
      for (const count of [3, LONG]) {
        for (const receivesFirst of [() => true, () => false, (rank: number) => rank % 2 === 0]) {
          await onRanks(worldSize, async (rank) => {
            const [next, before] = [(rank + 1) % worldSize, (rank + worldSize - 1) % worldSize];
            const got = zeros([count]);
            const ops = [P2POp(isend, full([count], rank), next), P2POp(irecv, got, before)];
            await allDone(batchIsendIrecv(receivesFirst(rank) ? ops.reverse() : ops));
            assert.deepEqual(
              [got.amin(), got.amax()].map((t) => t.item()),
              [before, before],
            );
          });
        }
      }
    }
  });

  it('matches single isend and irecv calls of other ranks', async () => {
    await onRanks(2, async (rank) => {
      const [a, b] = [full([2], rank), full([3], rank)];
      if (rank === 0)
        await allDone(batchIsendIrecv([new P2POp(irecv, a, 1), new P2POp(isend, b, 1)]));
      else {
        send(a, 0);
        recv(b, 0);
      }
      assert.deepEqual(
        [await valuesOf(a), await valuesOf(b)],
        [
          [1, 1],
          [0, 0, 0],
        ],
      );
    });
  });

  it('sends the values from before the batch, also of a tensor that the batch receives into', async () => {
    await onRanks(2, async (rank) => {
      const t = arange(4, { dtype: float32 }).add(10 * rank);
      batchIsendIrecv([
        P2POp(irecv, t.narrow(0, 0, 2), 1 - rank),
        P2POp(isend, t.narrow(0, 1, 2), 1 - rank),
      ]);
      const other = 10 * (1 - rank);
      assert.deepEqual(await valuesOf(t), [other + 1, other + 2, 10 * rank + 2, 10 * rank + 3]);
    });
  });

  it('receives into interleaved views', async () => {
    await onRanks(2, async (rank) => {
      const t = zeros([2, 2]);
      const peer = 1 - rank;
      batchIsendIrecv(
        [0, 1].flatMap((column) => [
          P2POp(irecv, t.select(1, column), peer),
          P2POp(isend, full([2], 10 * rank + column), peer),
        ]),
      );
      assert.deepEqual(await valuesOf(t), [10 * peer, 10 * peer + 1, 10 * peer, 10 * peer + 1]);
    });
  });

  it('keeps messages within their group', async () => {
    await onRanks(3, async (rank) => {
      const group = newGroup([2, 0]);
      if (rank === 1) return;
      const got = zeros([2]);
      const op = P2POp(irecv, got, 2 - rank, { group });
      assert.deepEqual([op.op, op.tensor, op.peer, op.group], [irecv, got, 2 - rank, group]);
      batchIsendIrecv([P2POp(isend, full([2], rank), 2 - rank, { group }), op]);
      assert.deepEqual(await valuesOf(got), [2 - rank, 2 - rank]);
    });
  });
});

describe('batchIsendIrecv', () => {
  it(
    'exchanges messages between processes',
    withRanks(
      2,
      async (rank) => {
        const got = zeros([LONG]);
        await allDone(
          batchIsendIrecv([
            P2POp(isend, full([LONG], rank), 1 - rank),
            P2POp(irecv, got, 1 - rank),
          ]),
        );
        assert.deepEqual([got.amin().item(), got.amax().item()], [1 - rank, 1 - rank]);
      },
      { mode: 'process' },
    ),
  );

  it('counts the messages of a fake world, which receives nothing', async () => {
    await initProcessGroup('fake', { rank: 1, worldSize: 3 });
    try {
      const mode = new CommDebugMode();
      const got = zeros([2]);
      mode.run(() => batchIsendIrecv([P2POp(isend, zeros([4]), 2), P2POp(irecv, got, 0)]));
      assert.deepEqual(
        mode.events.map(({ name, sentBytes, receivedBytes }) => [name, sentBytes, receivedBytes]),
        [
          ['irecv', 0, 8],
          ['isend', 16, 0],
        ],
      );
      assert.deepEqual(await valuesOf(got), [0, 0]);
    } finally {
      destroyProcessGroup();
    }
  });

  it('prints its ops, and names both call sites if the sizes of a message differ', async () => {
    const seen: unknown[] = [];
    await onRanks(2, async (rank) => {
      const group = newGroup();
      const op = P2POp(rank === 0 ? isend : irecv, zeros([2 + rank]), 1 - rank, { group });
      assert.equal(
        String(op),
        rank === 0
          ? 'P2POp(isend float32[2] to rank 1, group "group0")'
          : 'P2POp(irecv float32[3] from rank 0, group "group0")',
      );
      const [work] = batchIsendIrecv([op]) as [Work];
      await work.wait().catch((error) => seen.push(String(error)));
    });
    assert.match(
      seen.join(),
      /rank 0 sent 2 float32 to rank 1 at .*batch-isend-irecv\.test\.[jt]s:\d+.*, which receives 3 float32 at .*batch-isend-irecv\.test/,
    );
  });
});

describe('the argument checks of P2POp and batchIsendIrecv', () => {
  const x = (): Tensor => zeros([2]);
  const refused = (
    call: () => unknown,
    type: new (...args: never[]) => Error,
    text: RegExp,
  ): void =>
    assert.throws(call, (error: Error) => error instanceof type && text.test(error.message));

  it('refuse invalid arguments when an op is created', async () => {
    await onRanks(2, (rank) => {
      const other = newGroup([1]);
      if (rank === 1) return;
      for (const op of [send, recv, 'isend', undefined, null])
        refused(
          () => P2POp(op as never, x(), 1),
          ArgumentError,
          /^P2POp: expected op to be isend or irecv, got /,
        );
      for (const t of [undefined, 3, [x()]])
        refused(
          () => P2POp(isend, t as never, 1),
          ArgumentError,
          /^P2POp: expected the tensor to be a tensor, got /,
        );
      for (const peer of [undefined, '1', 0.5, -1])
        refused(
          () => P2POp(isend, x(), peer as never),
          ArgumentError,
          /^P2POp: expected peer to be a whole number/,
        );
      refused(
        () => P2POp(isend, x(), 2),
        ArgumentError,
        /^P2POp: peer 2 is not of group "world" \(ranks 0, 1\)/,
      );
      refused(
        () => P2POp(irecv, x(), 0),
        ArgumentError,
        /^P2POp: rank 0 cannot exchange messages with itself/,
      );
      refused(
        () => P2POp(irecv, x().narrow(0, 0, 1).expand([2]), 1),
        InPlaceError,
        /^P2POp: cannot write into the tensor/,
      );
      for (const options of [other, null, { grp: 1 }, { group: 3 }])
        refused(() => P2POp(isend, x(), 1, options as never), ArgumentError, /^P2POp: /);
      refused(
        () => P2POp(isend, x(), 1, { group: other }),
        DistributedError,
        /^P2POp: rank 0 is not a member of group "group0"/,
      );
    });
    refused(() => P2POp(isend, x(), 1), DistributedError, /^P2POp: there is no process group/);
  });

  it('refuse an invalid batch before anything is sent', async () => {
    await onRanks(2, (rank) => {
      const group: ProcessGroup = newGroup();
      const ended: ProcessGroup = newGroup();
      if (rank === 1) return;
      const op = P2POp(isend, x(), 1);
      for (const ops of [undefined, null, 3, op, [], {}])
        refused(
          () => batchIsendIrecv(ops as never),
          ArgumentError,
          /^batchIsendIrecv: expected ops to be a list of P2POp, got /,
        );
      for (const each of [undefined, x(), { op: isend, tensor: x(), peer: 1 }])
        refused(
          () => batchIsendIrecv([op, each as never]),
          ArgumentError,
          /^batchIsendIrecv: expected ops\[1\] to be /,
        );
      refused(
        () => batchIsendIrecv([op, P2POp(irecv, x(), 1, { group })]),
        ArgumentError,
        /^batchIsendIrecv: expected ops of one group, got some of group "world" and some of group "group0"\. Use a batch for each/,
      );
      const ofEnded = P2POp(isend, x(), 1, { group: ended });
      destroyProcessGroup(ended);
      refused(
        () => batchIsendIrecv([ofEnded]),
        DistributedError,
        /^batchIsendIrecv: group "group1" has ended/,
      );
      const gone = x();
      const ofGone = P2POp(irecv, gone, 1);
      gone.dispose();
      refused(() => batchIsendIrecv([op, ofGone]), Error, /^batchIsendIrecv: .*dispose/);
      const whole = x();
      refused(
        () => batchIsendIrecv([P2POp(irecv, whole, 1), op, P2POp(irecv, whole.narrow(0, 1, 1), 1)]),
        InPlaceError,
        /^batchIsendIrecv: ops\[0\] and ops\[2\] receive into the same memory/,
      );
      assert.doesNotThrow(() => zeros([1]).item(), 'something was sent');
    });
  });
});
