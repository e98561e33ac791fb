/**
 * Invalid arguments of collectives: errors of the library that name the called function, before
 * anything is sent.
 */
import assert from 'node:assert/strict';
import * as distributed from '../../../lib/distributed.js';
import {
  DistributedError,
  DTensor,
  destroyProcessGroup,
  getRank,
  getWorldSize,
  initDeviceMesh,
  isInitialized,
  newGroup,
  Partial,
  type ProcessGroup,
  Replicate,
  Shard,
  worldGroup,
} from '../../../lib/distributed.js';
import {
  ArgumentError,
  arange,
  DtypeError,
  InPlaceError,
  int64,
  ShapeError,
  ShardingError,
  ShardwiseError,
  type Tensor,
  zeros,
} from '../../../lib/index.js';
import { errorOf, onRanks } from '../support/on-ranks.js';

type Call = (...args: never[]) => unknown;
const calls = distributed as unknown as Record<string, Call>;
const x = (): Tensor => zeros([2]);
const pair = (): Tensor[] => [zeros([2]), zeros([2])];

/** Arguments that are right on rank 0 of 2. */
const right: Record<string, () => unknown[]> = {
  allReduce: () => [x()],
  reduce: () => [x(), 0],
  broadcast: () => [x(), 0],
  allGather: () => [pair(), x()],
  allGatherIntoTensor: () => [zeros([4]), x()],
  reduceScatter: () => [x(), pair()],
  reduceScatterTensor: () => [x(), zeros([4])],
  allToAll: () => [pair(), pair()],
  allToAllSingle: () => [x(), x()],
  gather: () => [x()],
  scatter: () => [x()],
  barrier: () => [],
  send: () => [x(), 1],
  recv: () => [x(), 1],
  isend: () => [x(), 1],
  irecv: () => [x(), 1],
};

/**
 * Calls it on rank 0 of 2, where nothing may have been sent when it throws: the other rank calls
 * nothing.
 */
async function refusal(name: string, args: () => unknown[]): Promise<ShardwiseError> {
  const [error] = await onRanks(2, async (rank) => {
    if (rank === 1) return null;
    let thrown: unknown = null;
    try {
      await (calls[name] as Call)(...(args() as never[]));
    } catch (caught) {
      thrown = caught;
    }
    assert.doesNotThrow(() => zeros([1]).item(), `${name} was called all the same`);
    return thrown;
  });
  assert.ok(error instanceof ShardwiseError, `${name}: ${String(error)}`);
  assert.ok(error.message.startsWith(`${name}: `), `${name}: ${error.message}`);
  return error;
}

const options =
  (name: string, more: object): (() => unknown[]) =>
  () => [...(right[name] as () => unknown[])(), more];
const rooted = (name: string): object =>
  name === 'gather' ? { gatherList: pair() } : name === 'scatter' ? { scatterList: pair() } : {};

describe('an invalid argument of a collective', () => {
  for (const name of Object.keys(right)) {
    it(`is refused by ${name}: a wrong tensor, option, group or rank`, async () => {
      const make = right[name] as () => unknown[];
      const replaced = (i: number, other: unknown): unknown[] =>
        make().map((each, at) => (at === i ? other : each));
      for (const [i, arg] of make().entries()) {
        const others =
          typeof arg === 'number'
            ? [undefined, null, '0', 0.5, -1, 2, Number.NaN]
            : [undefined, null, 3, 'x', {}, []];
        for (const other of others) {
          const error = await refusal(name, () => [...replaced(i, other), rooted(name)]);
          assert.ok(
            error instanceof ArgumentError,
            `${name} argument ${i} as ${String(other)}: ${error.stack}`,
          );
        }
        if (Array.isArray(arg)) {
          for (const list of [
            () => [x()],
            () => [x(), x(), x()],
            () => [x(), null],
            () => [3, x()],
          ]) {
            assert.ok((await refusal(name, () => replaced(i, list()))) instanceof ArgumentError);
          }
        }
      }
      for (const wrong of [
        { grp: 1 },
        { group: 3 },
        { group: null },
        [],
        null,
        'sum',
        ...(name === 'barrier' ? [] : [{ asyncOp: 1 }]),
      ]) {
        assert.ok(
          (await refusal(name, options(name, wrong as object))) instanceof ArgumentError,
          `${name} ${JSON.stringify(wrong)}`,
        );
      }
    });
  }

  it('is refused if operands do not fit together in size, dtype or number', async () => {
    const wrong: [string, () => unknown[], new (...args: never[]) => ShardwiseError][] = [
      ['allReduce', () => [x(), { op: 'mean' }], ArgumentError],
      ['reduceScatterTensor', () => [x(), zeros([4]), { op: 3 }], ArgumentError],
      ['allGather', () => [[zeros([3]), zeros([3])], x()], ShapeError],
      ['allGather', () => [[x(), zeros([2], { dtype: int64 })], x()], DtypeError],
      ['allGatherIntoTensor', () => [zeros([5]), x()], ShapeError],
      ['allGatherIntoTensor', () => [zeros([4], { dtype: int64 }), x()], DtypeError],
      ['reduceScatter', () => [zeros([3]), pair()], ShapeError],
      ['reduceScatter', () => [x(), [x(), zeros([2], { dtype: int64 })]], DtypeError],
      ['reduceScatterTensor', () => [x(), zeros([5])], ShapeError],
      ['allToAll', () => [[x(), zeros([2], { dtype: int64 })], pair()], DtypeError],
      ['allToAllSingle', () => [zeros([2]), zeros([3])], ShapeError],
      ['allToAllSingle', () => [zeros([2]), zeros([2], { dtype: int64 })], DtypeError],
      ['allToAllSingle', () => [x(), x(), { inputSplitSizes: [1] }], ShapeError],
      ['allToAllSingle', () => [x(), x(), { inputSplitSizes: [3, -1] }], ShapeError],
      ['allToAllSingle', () => [x(), x(), { outputSplitSizes: [1, 2] }], ShapeError],
      ['allToAllSingle', () => [x(), x(), { outputSplitSizes: [0.5, 1.5] }], ArgumentError],
      ['allToAllSingle', () => [x(), x(), { outputSplitSizes: 2 }], ArgumentError],
      ['gather', () => [x()], ArgumentError],
      ['gather', () => [x(), { gatherList: pair(), dst: 1 }], ArgumentError],
      ['gather', () => [x(), { gatherList: [x(), zeros([3])] }], ShapeError],
      ['gather', () => [x(), { gatherList: [x(), zeros([2], { dtype: int64 })] }], DtypeError],
      ['gather', () => [x(), { dst: 7 }], ArgumentError],
      ['scatter', () => [x()], ArgumentError],
      ['scatter', () => [x(), { scatterList: pair(), src: 1 }], ArgumentError],
      ['scatter', () => [x(), { scatterList: [x(), zeros([3])] }], ShapeError],
      ['scatter', () => [x(), { scatterList: [x(), zeros([2], { dtype: int64 })] }], DtypeError],
      ['send', () => [x(), 0], ArgumentError],
      ['irecv', () => [x(), 0], ArgumentError],
      ['send', () => [x(), 1, { asyncOp: true }], ArgumentError],
    ];
    for (const [name, args, type] of wrong)
      assert.ok((await refusal(name, args)) instanceof type, `${name}: expected ${type.name}`);
  });

  it('is refused if it is a distributed tensor, with what to give instead', async () => {
    const placements = {
      'Shard(0)': Shard(0),
      'Replicate()': Replicate(),
      'Partial(sum)': Partial(),
    };
    for (const [text, placement] of Object.entries(placements)) {
      const t = (): Tensor =>
        DTensor.fromLocal(x(), initDeviceMesh('cpu', [2], { meshDimNames: ['dp'] }), [placement]);
      const given: [string, () => unknown[]][] = [
        ...Object.entries(right).flatMap(([name, args]): [string, () => unknown[]][] =>
          args().flatMap((arg, at): [string, () => unknown[]][] => {
            if (typeof arg === 'number') return [];
            const wrong = (): unknown => (Array.isArray(arg) ? [x(), t()] : t());
            return [
              [name, () => [...args().map((each, i) => (i === at ? wrong() : each)), rooted(name)]],
            ];
          }),
        ),
        ['gather', () => [x(), { gatherList: [x(), t()] }]],
        ['scatter', () => [x(), { scatterList: [x(), t()] }]],
      ];
      for (const [name, args] of given) {
        const error = await refusal(name, args);
        assert.ok(error instanceof ShardingError, `${name} of ${text}: ${error.stack}`);
        for (const part of [
          'to be a plain tensor, got a distributed one',
          `on mesh (dp: 2): [${text}]`,
          'toLocal()',
          'redistribute(',
          'fullTensor()',
        ]) {
          assert.ok(error.message.includes(part), `${name} of ${text}: ${error.message}`);
        }
        assert.deepEqual(error.details['placements'], [placement]);
        assert.equal(error.details['mesh'], 'mesh (dp: 2)');
      }
    }
  });

  it('is refused if it is an output whose elements share memory', async () => {
    const shared = (): Tensor => zeros([1]).expand([2]);
    const writes: [string, () => unknown[]][] = [
      ['allReduce', () => [shared()]],
      ['allGather', () => [[x(), shared()], x()]],
      ['allGatherIntoTensor', () => [zeros([1]).expand([4]), x()]],
      ['reduceScatter', () => [shared(), pair()]],
      ['allToAll', () => [[shared(), x()], pair()]],
      ['gather', () => [x(), { gatherList: [shared(), x()] }]],
      ['recv', () => [shared(), 1]],
    ];
    for (const [name, args] of writes)
      assert.ok((await refusal(name, args)) instanceof InPlaceError, name);
  });

  it('is refused by newGroup, getRank and getWorldSize', async () => {
    await onRanks(2, async (rank) => {
      for (const ranks of [[], [2], [-1], [0, 0], [0.5], 'world', { 0: 1 }]) {
        assert.throws(
          () => newGroup(ranks as never),
          (error: Error) =>
            error instanceof ArgumentError && error.message.startsWith('newGroup: '),
        );
      }
      const group = newGroup([1]);
      assert.deepEqual([getRank(group), getWorldSize(group)], rank === 1 ? [0, 1] : [-1, -1]);
      assert.deepEqual([getRank(), getWorldSize(), worldGroup().ranks], [rank, 2, [0, 1]]);
      for (const get of [getRank, getWorldSize])
        assert.throws(() => get({} as never), ArgumentError);
    });
  });
});

describe('a rank outside a group', () => {
  it('gets an error that says so from every collective', async () => {
    await onRanks(3, async (rank) => {
      const group = newGroup([2, 1]);
      if (rank !== 0) return;
      for (const [name, args] of Object.entries(right)) {
        const error = await errorOf(
          (async () => (calls[name] as Call)(...([...args(), { group }] as never[])))(),
        );
        assert.ok(
          error instanceof DistributedError &&
            error.message.startsWith(
              `${name}: rank 0 is not a member of group "group0" (ranks 2, 1)`,
            ),
          error.stack,
        );
      }
    });
  });

  it('is refused as a root or peer', async () => {
    await onRanks(3, async (rank) => {
      const group = newGroup([0, 2]);
      if (rank !== 0) return;
      const { broadcast, send } = distributed;
      assert.throws(
        () => broadcast(x(), 1, { group }),
        /broadcast: src 1 is not of group "group0" \(ranks 0, 2\)/,
      );
      assert.throws(() => send(x(), 1, { group }), ArgumentError);
    });
  });

  it('gets errors after destroyProcessGroup, first of one group, then of all', async () => {
    await onRanks(2, async () => {
      const group = newGroup();
      const world = worldGroup();
      destroyProcessGroup(group);
      destroyProcessGroup(group);
      const refused = async (given: ProcessGroup | undefined, text: RegExp): Promise<void> => {
        for (const [name, args] of Object.entries(right)) {
          const error = await errorOf(
            (async () =>
              (calls[name] as Call)(
                ...([...args(), ...(given === undefined ? [] : [{ group: given }])] as never[]),
              ))(),
          );
          assert.ok(
            error instanceof DistributedError &&
              error.message.startsWith(`${name}: `) &&
              text.test(error.message),
            error.stack,
          );
        }
      };
      await refused(group, /has ended: .*destroyProcessGroup was called/);
      await distributed.barrier();
      assert.equal(isInitialized(), true);
      destroyProcessGroup();
      destroyProcessGroup();
      assert.equal(isInitialized(), false);
      await refused(undefined, /there is no process group/);
      await refused(world, /no process group|has ended/);
      for (const ask of [getRank, getWorldSize, worldGroup, newGroup])
        assert.throws(() => ask(), DistributedError);
      assert.equal(arange(3).sum().item(), 3);
    });
  });

  it('gets an error from every collective if there is no process group', async () => {
    for (const [name, args] of Object.entries(right)) {
      const error = await errorOf((async () => (calls[name] as Call)(...(args() as never[])))());
      assert.ok(
        error instanceof DistributedError &&
          error.message.startsWith(`${name}: there is no process group. Call`),
        error.stack,
      );
    }
  });
});
