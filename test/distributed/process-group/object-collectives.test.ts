/** Collectives of plain values. */
import assert from 'node:assert/strict';
import { inspect } from 'node:util';
import { serialize } from 'node:v8';
import fc from 'fast-check';
import {
  allGatherObject,
  broadcastObjectList,
  CollectiveError,
  DistributedError,
  gatherObject,
  newGroup,
  scatterObjectList,
} from '../../../lib/distributed.js';
import { ArgumentError, tensor } from '../../../lib/index.js';
import { errorOf, onRanks } from '../support/on-ranks.js';

const values = [
  null,
  undefined,
  3.5,
  -0,
  2n ** 70n,
  'text \u{1f600}',
  [1, [2, { deep: ['x'] }]],
  new Map<unknown, unknown>([[{ key: 1 }, new Set([1, 2])]]),
  new Date(0),
  /re/g,
  Float64Array.of(1, 2),
  new RangeError('an error'),
  { cyclic: null as unknown },
];
(values.at(-1) as { cyclic: unknown }).cyclic = values.at(-1);

const own = (rank: number): unknown => ({ rank, values, long: 'x'.repeat(rank * 50_000) });

describe('a collective of objects', () => {
  it('gathers the objects of all ranks on every rank', async () => {
    await onRanks(3, async (rank) => {
      const list = Array<unknown>(3);
      await allGatherObject(list, own(rank));
      assert.deepEqual(list, [own(0), own(1), own(2)]);
    });
  });

  it('gathers, broadcasts and scatters objects of any size in groups', async () => {
    await onRanks(4, async (rank) => {
      const group = newGroup([3, 0, 2]);
      if (rank === 1) return;
      const given = rank === 2 ? [own(1), undefined, 'c'] : [1, 2, 3];
      await broadcastObjectList(given, 2, { group });
      assert.deepEqual(given, [own(1), undefined, 'c']);
      const gathered = Array<unknown>(3);
      await gatherObject(
        { from: rank },
        { dst: 2, group, ...(rank === 2 ? { objectGatherList: gathered } : {}) },
      );
      assert.deepEqual(gathered, rank === 2 ? [{ from: 3 }, { from: 0 }, { from: 2 }] : Array(3));
      const output: unknown[] = [null, 'kept'];
      await scatterObjectList(output, {
        src: 0,
        group,
        ...(rank === 0 ? { scatterObjectInputList: [['three'], own(2), 'two'] } : {}),
      });
      assert.deepEqual(output, [
        group.rank === 0 ? ['three'] : group.rank === 1 ? own(2) : 'two',
        'kept',
      ]);
    });
  });

  it('takes empty lists, and uses root 0 by default', async () => {
    await onRanks(2, async (rank) => {
      const none: unknown[] = [];
      await broadcastObjectList(none);
      assert.deepEqual(none, []);
      const gathered = [0, 0];
      await gatherObject(rank, rank === 0 ? { objectGatherList: gathered } : {});
      assert.deepEqual(gathered, rank === 0 ? [0, 1] : [0, 0]);
    });
  });

  it('copies all plain values', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(
          fc.anything({
            withBigInt: true,
            withMap: true,
            withSet: true,
            withTypedArray: true,
            withDate: true,
          }),
          { minLength: 2, maxLength: 2 },
        ),
        async (given) => {
          const [, received] = await onRanks(2, async (rank) => {
            const list = Array<unknown>(2);
            await allGatherObject(list, given[rank]);
            return list;
          });
          assert.ok(
            serialize(received).equals(serialize(structuredClone(given))),
            inspect(received),
          ); // deepEqual finds no invalid dates in sets
        },
      ),
      { numRuns: 40 },
    );
  });

  it('refuses values that cannot be copied, and lists of the wrong length, before anything is sent', async () => {
    await onRanks(2, async (rank) => {
      const places = [0, 0];
      const wrong: [string, () => Promise<void>][] = [
        ['allGatherObject', () => allGatherObject(places, () => 1)],
        ['allGatherObject', () => allGatherObject(places, { deep: [new Map([[1, tensor([1])]])] })],
        ['allGatherObject', () => allGatherObject([0], 1)],
        ['allGatherObject', () => allGatherObject(null as never, 1)],
        ['allGatherObject', () => allGatherObject(places, 1, { dst: 0 } as never)],
        ['broadcastObjectList', () => broadcastObjectList([Symbol('x')], rank)],
        ['broadcastObjectList', () => broadcastObjectList('list' as never)],
        ['broadcastObjectList', () => broadcastObjectList([1], 2)],
        ['gatherObject', () => gatherObject(1, { dst: rank })],
        ['gatherObject', () => gatherObject(1, { dst: 1 - rank, objectGatherList: places })],
        ['scatterObjectList', () => scatterObjectList([], { src: 1 - rank })],
        [
          'scatterObjectList',
          () => scatterObjectList([0], { src: rank, scatterObjectInputList: [1] }),
        ],
        [
          'scatterObjectList',
          () => scatterObjectList([0], { src: 1 - rank, scatterObjectInputList: [1, 2] }),
        ],
      ];
      for (const [name, call] of wrong) {
        const error = await errorOf(call());
        assert.ok(
          error instanceof ArgumentError && error.message.startsWith(`${name}: `),
          error.stack,
        );
      }
      await allGatherObject(places, rank);
      assert.deepEqual(places, [0, 1]);
    });
    const error = await errorOf(allGatherObject([0], 1));
    assert.ok(
      error instanceof DistributedError &&
        /^allGatherObject: there is no process group/.test(error.message),
    );
  });

  it('fails on every rank if lists or calls differ', async () => {
    await onRanks(2, async (rank) => {
      const list = rank === 0 ? [1, 2] : [1];
      const done = broadcastObjectList(list);
      if (rank === 0) await done;
      else
        await assert.rejects(
          done,
          /broadcastObjectList: expected objectList to have 2 objects, as on rank 0, got 1/,
        );
    });
    await onRanks(2, async (rank) => {
      const error = await errorOf(
        rank === 0 ? allGatherObject([0, 0], 1) : broadcastObjectList([1]),
      );
      assert.ok(
        error instanceof CollectiveError &&
          /allGatherObject/.test(error.message) &&
          /broadcastObjectList/.test(error.message),
        error.stack,
      );
    });
  });
});
