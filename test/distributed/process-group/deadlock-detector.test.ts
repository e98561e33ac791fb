/** The deadlock detector against a simple model of when a call completes. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  type Entry,
  PendingCalls,
} from '../../../lib/distributed/process-group/diagnosis/deadlock-detector.js';
import { DistributedError } from '../../../lib/distributed.js';

const WORLD = 4;
const groups: Record<string, number[]> = {
  all: [0, 1, 2, 3],
  low: [0, 1],
  odd: [3, 1],
  three: [2, 0, 3],
};

type Step =
  | { kind: 'call'; rank: number; group: string }
  | { kind: 'send' | 'recv'; rank: number; peer: number }
  | { kind: 'leave'; rank: number };

interface Made {
  key: string;
  members: number[];
}

/**
 * The definition: done is what every member has called or will never call, and behind nothing that
 * is not done. The least such set.
 */
class Naive {
  readonly lists: Made[][] = Array.from({ length: WORLD }, () => []);
  readonly gone = new Set<number>();
  private readonly counts = new Map<string, number>();

  add(rank: number, channel: string, members: number[]): void {
    const number = this.counts.get(`${channel}:${rank}`) ?? 0;
    this.counts.set(`${channel}:${rank}`, number + 1);
    (this.lists[rank] as Made[]).push({ key: `${channel}#${number}`, members });
  }

  isClear(rank: number): boolean {
    const done = new Set<string>();
    const can = (call: Made): boolean =>
      call.members.every((member) => {
        const list = this.lists[member] as Made[];
        const at = list.findIndex((each) => each.key === call.key);
        return at < 0
          ? this.gone.has(member)
          : list.slice(0, at).every((each) => done.has(each.key));
      });
    for (let more = true; more; ) {
      const next = this.lists.flat().filter((call) => !done.has(call.key) && can(call));
      for (const call of next) done.add(call.key);
      more = next.length > 0;
    }
    return (this.lists[rank] as Made[]).every((call) => done.has(call.key));
  }
}

const entry = (rank: number, group: string, members: readonly number[], where = ''): Entry => ({
  rank,
  lane: 10 + rank,
  group,
  members,
  name: 'allReduce',
  where,
  inOrder: true,
});

/** @returns false where the order of calls can never complete */
function apply(step: Step, pending: PendingCalls, naive: Naive): boolean {
  if (naive.gone.has(step.rank)) return true;
  if (step.kind === 'leave') {
    naive.gone.add(step.rank);
    pending.leave(step.rank);
  } else if (step.kind === 'call') {
    const members = groups[step.group] as number[];
    if (!members.includes(step.rank)) return true;
    naive.add(step.rank, step.group, members);
    try {
      pending.enter(entry(step.rank, step.group, members));
    } catch (error) {
      assert.ok(error instanceof DistributedError);
      return false;
    }
  } else if (step.peer !== step.rank) {
    const [from, to] = step.kind === 'send' ? [step.rank, step.peer] : [step.peer, step.rank];
    naive.add(step.rank, `all:${from}>${to}`, [from, to]);
    pending.enterMessage(entry(step.rank, 'all', groups['all'] as number[]), from, to);
  }
  return true;
}

/** Whether ranks that send and receive in these orders come to no end. */
function areStuck(lists: readonly (readonly [number, number][])[]): boolean {
  const left = lists.map((list) => [...list]);
  const sent = new Map<string, number>();
  for (let more = true; more; ) {
    more = false;
    for (const [r, list] of left.entries()) {
      const [from, to] = list[0] ?? [r, r];
      const count = sent.get(`${from}>${to}`) ?? 0;
      if (from === to || (to === r && count === 0)) continue;
      sent.set(`${from}>${to}`, count + (to === r ? -1 : 1));
      list.shift();
      more = true;
    }
  }
  return left.some((list) => list.length > 0);
}

const rank = fc.nat(WORLD - 1);
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 12,
    arbitrary: fc.record({
      kind: fc.constant('call' as const),
      rank,
      group: fc.constantFrom(...Object.keys(groups)),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constantFrom('send' as const, 'recv' as const),
      rank,
      peer: rank,
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('leave' as const), rank }) },
);

describe('the deadlock detector', () => {
  it('knows after every call which ranks wait for a rank that has yet to call', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const [pending, naive] = [new PendingCalls(WORLD), new Naive()];
        for (const each of steps) {
          apply(each, pending, naive);
          for (let r = 0; r < WORLD; r++) {
            assert.equal(pending.isClear(r), naive.isClear(r), `rank ${r}`);
            if (naive.isClear(r)) assert.equal(pending.describe(r), null);
            else assert.throws(() => pending.check(r, 'item'), DistributedError);
          }
        }
      }),
      { numRuns: 300 },
    );
  });

  it('accepts every order that all ranks share, and refuses every completed order that deadlocks', () => {
    const program = fc.array(fc.constantFrom(...Object.keys(groups)), { maxLength: 12 });
    fc.assert(
      fc.property(
        program,
        fc.array(rank, { maxLength: 80 }),
        fc.option(fc.tuple(fc.nat(), rank), { nil: null }),
        (names, turns, swap) => {
          const lists = Array.from({ length: WORLD }, (_, r) =>
            names.filter((name) => groups[name]?.includes(r)),
          );
          const swapped = swap === null ? undefined : lists[swap[1]];
          if (swap !== null && swapped !== undefined && swapped.length > 1) {
            const at = swap[0] % (swapped.length - 1);
            [swapped[at], swapped[at + 1]] = [swapped[at + 1] as string, swapped[at] as string];
          }
          const [pending, naive] = [new PendingCalls(WORLD), new Naive()];
          let refused = false;
          for (const r of [...turns, ...lists.flatMap((list, i) => list.map(() => i))]) {
            const group = lists[r]?.shift();
            if (group !== undefined && !apply({ kind: 'call', rank: r, group }, pending, naive))
              refused = true;
          }
          const stuck = [0, 1, 2, 3].some((r) => !naive.isClear(r));
          assert.equal(refused, stuck);
        },
      ),
      { numRuns: 300 },
    );
  });

  it('refuses an order that never completes before all waiting ranks are stuck', () => {
    const program = fc.array(fc.constantFrom(...Object.keys(groups)), { maxLength: 12 });
    fc.assert(
      fc.property(
        program,
        fc.array(rank, { maxLength: 80 }),
        fc.array(fc.tuple(fc.nat(), rank), { maxLength: 3 }),
        (names, turns, swaps) => {
          const lists = Array.from({ length: WORLD }, (_, r) =>
            names.filter((name) => groups[name]?.includes(r)),
          );
          for (const [place, r] of swaps) {
            const list = lists[r] as string[];
            const at = place % Math.max(1, list.length - 1);
            if (list.length > 1)
              [list[at], list[at + 1]] = [list[at + 1] as string, list[at] as string];
          }
          const [pending, naive] = [new PendingCalls(WORLD), new Naive()];
          const left = lists.map((list) => [...list]);
          const canGoOn = (r: number): boolean =>
            (left[r] as string[]).length > 0 && pending.isClear(r);
          for (let turn = 0; left.some((_, r) => canGoOn(r)); turn++) {
            const wanted = turns[turn % Math.max(1, turns.length)] ?? 0;
            const r = canGoOn(wanted) ? wanted : left.findIndex((_, each) => canGoOn(each));
            const group = (left[r] as string[]).shift() as string;
            if (apply({ kind: 'call', rank: r, group }, pending, naive)) continue;
            // Whatever is called from now on, these never complete.
            for (const [other, list] of left.entries())
              for (const name of list) naive.add(other, name, groups[name] as number[]);
            assert.ok([0, 1, 2, 3].some((each) => !naive.isClear(each)));
            return;
          }
          assert.ok(
            left.every((list) => list.length === 0),
            'they stand still, and nobody was told',
          );
        },
      ),
      { numRuns: 500 },
    );
  });

  it('refuses messages exactly if receives wait for each other in a cycle', () => {
    const message = fc.tuple(rank, rank).filter(([from, to]) => from !== to);
    const swaps = fc.array(fc.tuple(rank, fc.nat()), { maxLength: 6 });
    fc.assert(
      fc.property(
        fc.array(message, { maxLength: 10 }),
        swaps,
        fc.array(rank, { maxLength: 30 }),
        (messages, swapped, turns) => {
          const lists = Array.from({ length: WORLD }, (_, r) =>
            messages.filter((each) => each.includes(r)),
          );
          for (const [r, place] of swapped) {
            const list = lists[r] as [number, number][];
            const at = place % Math.max(1, list.length - 1);
            if (list.length > 1)
              [list[at], list[at + 1]] = [
                list[at + 1] as [number, number],
                list[at] as [number, number],
              ];
          }
          const stuck = areStuck(lists);
          const pending = new PendingCalls(WORLD);
          let refused = false;
          for (const r of [...turns, ...lists.flatMap((list, i) => list.map(() => i))]) {
            const [from, to] = lists[r]?.shift() ?? [r, r];
            if (from === to) continue;
            try {
              pending.enterMessage(
                { ...entry(r, 'all', groups['all'] as number[]), holdsUp: r === to },
                from,
                to,
              );
            } catch (error) {
              assert.ok(error instanceof DistributedError);
              refused = true;
            }
          }
          assert.equal(refused, stuck);
        },
      ),
      { numRuns: 500 },
    );
  });

  it('names the ranks that have not called, and the crossing calls of two groups', () => {
    const pending = new PendingCalls(2);
    pending.enter(entry(0, 'a', [0, 1], 'x.ts:1'));
    pending.enter(entry(0, 'b', [0, 1], 'x.ts:2'));
    assert.equal(
      pending.describe(0),
      'the allReduce of group "a" that came before rank 1 has not called yet',
    );
    assert.throws(
      () => pending.enter(entry(1, 'b', [0, 1], 'y.ts:1')),
      /Rank 1 calls the allReduce of group "b" \(y\.ts:1\) before the allReduce of group "a", and rank 0 called that before the allReduce of group "b" \(x\.ts:2\)/,
    );
    assert.equal(
      pending.describe(1),
      'the allReduce of group "b" that came before waits for other calls',
    );
  });

  it('reports crossing calls on separate lanes only once both ranks have made both calls', () => {
    const pending = new PendingCalls(2);
    const loose = (rank: number, group: string, where: string): void =>
      pending.enter({ ...entry(rank, group, [0, 1], where), inOrder: false });
    loose(0, 'a', 'x.ts:1');
    loose(0, 'b', 'x.ts:2');
    loose(1, 'b', 'y.ts:1');
    assert.throws(
      () => loose(1, 'a', 'y.ts:2'),
      /Rank 1 calls the allReduce of group "a" after the allReduce of group "b" \(y\.ts:2\), and rank 0 called that before the allReduce of group "b" \(x\.ts:2\)/,
    );
  });

  it('names the calls of two ranks that wait for each other before their next call', () => {
    const pending = new PendingCalls(3);
    pending.enter(entry(0, 'b', [0, 1], 'x.ts:1'));
    pending.enter(entry(2, 'c', [1, 2], 'z.ts:1'));
    assert.throws(
      () => pending.enter(entry(1, 'a', [0, 1], 'y.ts:1')),
      /Rank 1 calls the allReduce of group "a" \(y\.ts:1\) before the allReduce of group "b", and rank 0 called that before it comes to the allReduce of group "a" \(x\.ts:1\)\. /,
    );
  });

  it('reports no cycle after a rank has observed a failure, because failed calls wait for nobody', () => {
    const pending = new PendingCalls(2);
    pending.enter({ ...entry(0, 'b', [0, 1]), hasFailed: true });
    pending.enter(entry(1, 'a', [0, 1]));
    pending.clear(10);
    pending.enter(entry(0, 'a', [0, 1]));
    assert.ok(pending.isClear(0) && pending.isClear(1));
  });

  it('forgets cleared lanes, and ranks that have left a group', () => {
    const pending = new PendingCalls(3);
    for (const r of [0, 1]) pending.enter(entry(r, 'all', [0, 1, 2]));
    pending.clear(10);
    assert.deepEqual([pending.isClear(0), pending.isClear(1)], [true, false]);
    pending.clear(99);
    pending.enter(entry(2, 'all', [0, 1, 2]));
    assert.deepEqual([pending.isClear(1), pending.isClear(2)], [true, true]);
    pending.leave(0, 'pair');
    pending.enter(entry(0, 'all', [0, 1, 2]));
    pending.enter(entry(1, 'pair', [0, 1]));
    assert.deepEqual([pending.isClear(0), pending.isClear(1)], [false, true]);
    pending.leave(1);
    pending.leave(2, 'all');
    assert.equal(pending.isClear(0), true);
  });

  it('stays fast with thousands of calls that other ranks have yet to make', () => {
    const pending = new PendingCalls(3);
    const begin = process.cpuUsage(); // other programs may have the processors
    for (const r of [0, 1, 2])
      for (let i = 0; i < 3000; i++) pending.enter(entry(r, i % 2 ? 'a' : 'b', [0, 1, 2]));
    assert.ok([0, 1, 2].every((r) => pending.isClear(r)));
    const ms = process.cpuUsage(begin).user / 1e3;
    assert.ok(ms < 4000, `${ms} ms`);
  });
});
