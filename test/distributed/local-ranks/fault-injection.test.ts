/** Injected faults, with and without a seed: delays, lost ranks and reordered results. */
import assert from 'node:assert/strict';
import type { RankFault } from '../../../lib/distributed/local-ranks/fault-injection.js';
import type { RankTurn } from '../../../lib/distributed/local-ranks/scheduler.js';
import { collectiveNames } from '../../../lib/distributed/process-group/collectives.js';
import * as distributed from '../../../lib/distributed.js';
import {
  allReduce,
  barrier,
  CollectiveError,
  DistributedError,
  newGroup,
} from '../../../lib/distributed.js';
import { ArgumentError, ones, type Tensor } from '../../../lib/index.js';
import { errorOf, onRanks, valuesOf } from '../support/on-ranks.js';

/** Reduces, waits and notes it, three times. */
const rounds = (notes: string[]) => async (rank: number) => {
  for (let i = 0; i < 3; i++) {
    const x = ones([1]);
    allReduce(x);
    assert.deepEqual(await valuesOf(x), [2]);
    notes.push(`${rank}:${i}`);
  }
};

describe('an injected delay', () => {
  it('of turns pauses a rank while others can continue', async () => {
    const order = async (faults: RankFault[]): Promise<number[]> => {
      const turns: RankTurn[] = [];
      await onRanks(3, async () => void (await ones([1]).read()), {
        seed: 4,
        faults,
        onTurn: (turn) => turns.push(turn),
      });
      return turns.map(({ rank }) => rank);
    };
    for (const rank of [0, 1, 2]) {
      const turns = await order([{ rank, at: 0, kind: 'delay', turns: 4 }]);
      assert.deepEqual(
        turns.slice(-2),
        [rank, rank],
        `rank ${rank} was delayed: ${turns.join(' ')}`,
      );
    }
    assert.deepEqual(
      (await order([0, 1, 2].map((rank) => ({ rank, at: 0, kind: 'delay', turns: 9 }) as const)))
        .length,
      6,
    );
  });

  it('of turns at a collective starts at the next wait', async () => {
    for (let seed = 0; seed < 20; seed++) {
      const notes: string[] = [];
      await onRanks(2, rounds(notes), {
        seed,
        faults: [{ rank: 1, at: { collective: 'allReduce', call: 2 }, kind: 'delay', turns: 3 }],
      });
      assert.ok(notes.indexOf('0:1') < notes.indexOf('1:1'), notes.join(' '));
    }
  });

  it('of milliseconds makes a rank late and changes nothing else', async () => {
    const notes: string[] = [];
    const begin = Date.now();
    await onRanks(2, rounds(notes), {
      faults: [
        { rank: 0, at: 0, kind: 'delay', ms: 30 },
        { rank: 0, at: { collective: 'allReduce', call: 3 }, kind: 'delay', ms: 40 },
      ],
    });
    assert.ok(Date.now() - begin >= 65);
    assert.deepEqual(notes.slice(-2), ['1:2', '0:2']);
  });
});

describe('a rank that is lost by an injected fault', () => {
  for (const seed of [undefined, 3]) {
    for (const at of [{ collective: 'allReduce', call: 2 }, 2]) {
      it(`at ${typeof at === 'number' ? 'a wait' : 'a collective'}, ${seed === undefined ? 'in free order' : 'in an order from a seed'}: its groups fail on the others, and only those`, async () => {
        const seen: string[] = [];
        const error = await errorOf(
          onRanks(
            3,
            async (rank) => {
              const others = newGroup([0, 2]);
              const [x, y, z] = [ones([1]), ones([1]), ones([1])];
              allReduce(x);
              await x.read();
              allReduce(y);
              if (rank === 1) {
                await y.read();
                seen.push('rank 1 went on');
              }
              const failure = await errorOf(y.read());
              assert.ok(failure instanceof CollectiveError, failure.stack);
              seen.push(failure.message);
              allReduce(z, { group: others });
              assert.deepEqual(await valuesOf(z), [2]);
            },
            { ...(seed === undefined ? {} : { seed }), faults: [{ rank: 1, at, kind: 'lose' }] },
          ),
        );
        assert.ok(error instanceof DistributedError && error.cause instanceof DistributedError);
        assert.match(
          error.message,
          /^rank 1 failed.*: (allReduce|read): rank 1 was lost here by an injected fault/,
        );
        assert.ok(
          seen.length === (typeof at === 'number' ? seen.length : 2) &&
            seen.every((text) => /rank 1 was lost/.test(text)),
          seen.join('\n'),
        );
      });
    }
  }

  it('cannot call anything, whatever it catches', async () => {
    const errors: string[] = [];
    await errorOf(
      onRanks(
        2,
        async (rank) => {
          if (rank === 0) return;
          for (let i = 0; i < 2; i++)
            errors.push((await errorOf((async () => allReduce(ones([1])))())).message);
          errors.push((await errorOf(barrier())).message);
          errors.push((await errorOf(ones([1]).read())).message);
        },
        { faults: [{ rank: 1, at: { collective: 'allReduce' }, kind: 'lose' }] },
      ),
    );
    assert.ok(
      errors.length === 4 && errors.every((text) => /rank 1 was lost/.test(text)),
      errors.join('\n'),
    );
  });
});

describe('an injected reordering', () => {
  it('swaps the results of two simultaneous waits', async () => {
    const order = async (at: number | null, seed?: number): Promise<string> => {
      const notes: string[] = [];
      await onRanks(
        2,
        async (rank) => {
          const note = (name: string) => (): unknown => rank === 0 && notes.push(name);
          await Promise.all(['a', 'b', 'c'].map((name) => ones([1]).read().then(note(name))));
        },
        {
          ...(seed === undefined ? {} : { seed }),
          faults: at === null ? [] : [{ rank: 0, at, kind: 'reorder' }],
        },
      );
      return notes.join('');
    };
    const free = [await order(null), await order(1), await order(2)];
    assert.ok(
      free[0] === 'abc' && /b.*a/.test(free[1] as string) && /c.*b/.test(free[2] as string),
      free.join(' '),
    );
    for (const seed of [1, 2, 3]) {
      assert.deepEqual(
        [await order(null, seed), await order(1, seed), await order(2, seed), await order(3, seed)],
        ['abc', 'bac', 'acb', 'abc'],
        `seed ${seed}`,
      );
    }
  });

  it('does not hold back a value without a second wait', async () => {
    for (const seed of [undefined, 1]) {
      await onRanks(1, async () => void (await ones([1]).read()), {
        ...(seed === undefined ? {} : { seed }),
        faults: [{ rank: 0, at: 1, kind: 'reorder' }],
      });
    }
  });
});

describe('an invalid fault', () => {
  it('is refused', async () => {
    const wrong: [object, boolean][] = [
      [{ rank: 2, at: 0, kind: 'lose' }, true],
      [{ rank: 0, at: -1, kind: 'lose' }, true],
      [{ rank: 0, at: 'allReduce', kind: 'lose' }, true],
      [{ rank: 0, at: { collective: 'allReduce', call: 0 }, kind: 'lose' }, true],
      [{ rank: 0, at: { call: 1 }, kind: 'lose' }, true],
      [{ rank: 0, at: { collective: 'all_reduce' }, kind: 'lose' }, true],
      [{ rank: 0, at: { collective: 'toString', call: 2 }, kind: 'lose' }, true],
      [{ rank: 0, at: 0, kind: 'explode' }, true],
      [{ rank: 0, at: 0, kind: 'delay' }, true],
      [{ rank: 0, at: 0, kind: 'delay', ms: 5 }, true],
      [{ rank: 0, at: 0, kind: 'delay', turns: 5 }, false],
      [{ rank: 0, at: 0, kind: 'delay', turns: 0.5 }, true],
      [{ rank: 0, at: 0, kind: 'lose', turns: 5 }, true],
      [{ rank: 0, at: { collective: 'allReduce' }, kind: 'reorder' }, true],
      [{ rank: 0, at: 0, kind: 'lose', when: 3 }, true],
      [null as never, true],
    ];
    for (const [fault, seeded] of wrong) {
      const error = await errorOf(
        onRanks(2, async () => 0, { faults: [fault as RankFault], ...(seeded ? { seed: 1 } : {}) }),
      );
      assert.ok(
        error instanceof ArgumentError && error.message.startsWith('launch: '),
        error.stack,
      );
    }
    assert.ok(
      (await errorOf(onRanks(2, async () => 0, { faults: {} as never }))) instanceof ArgumentError,
    );
  });
});

describe('an injected fault that no rank reaches', () => {
  for (const seed of [undefined, 3]) {
    it(`fails an otherwise successful run, ${seed === undefined ? 'in free order' : 'with a seed'}`, async () => {
      const faults: RankFault[] = [
        { rank: 1, kind: 'lose', at: { collective: 'allReduce', call: 4 } },
        { rank: 0, kind: 'lose', at: { collective: 'broadcast' } },
        { rank: 0, kind: 'reorder', at: 1 },
        { rank: 0, kind: 'lose', at: 500 },
      ];
      const run = onRanks(2, rounds([]), { faults, ...(seed === undefined ? {} : { seed }) });
      const error = (await errorOf(run)) as DistributedError;
      const missed = [
        'lose of rank 0 at its call 1 of broadcast: it made 0',
        'lose of rank 0 at its wait 500: it had 4, from 0',
        'lose of rank 1 at its call 4 of allReduce: it made 3',
      ];
      assert.deepEqual(error.details['missed'], missed);
      assert.equal(
        error.message,
        `launch: no rank reached 3 injected faults, and all ranks ended without an error.\n  ${missed.join('\n  ')}`,
      );
    });
  }

  it('is not reported beside another failure', async () => {
    const run = onRanks(2, async () => Promise.reject(new Error('boom')), {
      faults: [{ rank: 1, kind: 'lose', at: 500 }],
    });
    await assert.rejects(run, /^DistributedError.*rank \d failed: boom$/);
  });

  it('can be at any function that starts a collective', async () => {
    const x = (): Tensor => ones([2]);
    const pair = (): Tensor[] => [x(), x()];
    const calls: Record<(typeof collectiveNames)[number], (rank: number) => unknown> = {
      allReduce: () => allReduce(x()),
      reduce: () => distributed.reduce(x(), 0),
      broadcast: () => distributed.broadcast(x(), 0),
      allGather: () => distributed.allGather(pair(), x()),
      allGatherIntoTensor: () => distributed.allGatherIntoTensor(ones([4]), x()),
      allGatherIntoTensorCoalesced: () =>
        distributed.allGatherIntoTensorCoalesced([ones([4]), ones([4])], pair()),
      gather: (rank) => distributed.gather(x(), rank === 0 ? { gatherList: pair() } : {}),
      scatter: (rank) => distributed.scatter(x(), rank === 0 ? { scatterList: pair() } : {}),
      reduceScatter: () => distributed.reduceScatter(x(), pair()),
      reduceScatterTensor: () => distributed.reduceScatterTensor(x(), ones([4])),
      reduceScatterTensorCoalesced: () =>
        distributed.reduceScatterTensorCoalesced(pair(), [ones([4]), ones([4])]),
      allToAll: () => distributed.allToAll(pair(), pair()),
      allToAllSingle: () => distributed.allToAllSingle(x(), x()),
      barrier: () => barrier(),
      send: (rank) => (rank === 0 ? distributed.send(x(), 1) : distributed.recv(x(), 0)),
      recv: (rank) => (rank === 0 ? distributed.recv(x(), 1) : distributed.send(x(), 0)),
      isend: (rank) => (rank === 0 ? distributed.isend(x(), 1) : distributed.irecv(x(), 0)),
      irecv: (rank) => (rank === 0 ? distributed.irecv(x(), 1) : distributed.isend(x(), 0)),
      allGatherObject: () => distributed.allGatherObject([0, 0], 1),
      gatherObject: (rank) =>
        distributed.gatherObject(1, rank === 0 ? { objectGatherList: [0, 0] } : {}),
      broadcastObjectList: () => distributed.broadcastObjectList([1]),
      scatterObjectList: (rank) =>
        distributed.scatterObjectList([0], rank === 0 ? { scatterObjectInputList: [1, 2] } : {}),
      distributeTensor: () =>
        distributed.distributeTensor(x(), distributed.initDeviceMesh('cpu', [2]), [
          distributed.Shard(0),
        ]),
      'DTensor.fromLocal': () =>
        distributed.DTensor.fromLocal(
          x(),
          distributed.initDeviceMesh('cpu', [2]),
          [distributed.Replicate()],
          { runCheck: true },
        ),
    };
    assert.deepEqual(Object.keys(calls), [...collectiveNames]);
    for (const [collective, call] of Object.entries(calls)) {
      const run = onRanks(2, async (rank) => void (await call(rank)), {
        faults: [{ rank: 0, kind: 'delay', ms: 1, at: { collective } }],
      });
      await assert.doesNotReject(run, collective);
    }
  });
});
