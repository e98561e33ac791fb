/** Queries of groups: group ranks, global ranks and backends. */
import assert from 'node:assert/strict';
import {
  allReduce,
  DistributedError,
  destroyProcessGroup,
  getBackend,
  getGlobalRank,
  getGroupRank,
  getProcessGroupRanks,
  getRank,
  initDeviceMesh,
  initProcessGroup,
  launch,
  newGroup,
  type ProcessGroup,
  worldGroup,
} from '../../../lib/distributed.js';
import { ArgumentError, cuda, ones } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import { skipBecause } from '../../skip.js';
import { describeOverEngines, isOverGloo, onRanks } from '../support/on-ranks.js';
import { skipWithoutGloo } from '../support/skip-without-gloo.js';

/** In a world of four, on each of its ranks. */
function checkPlaces(rank: number): void {
  const group = newGroup([3, 1, 2]);
  assert.deepEqual(
    [0, 1, 2].map((place) => getGlobalRank(group, place)),
    [3, 1, 2],
  );
  assert.deepEqual(
    [1, 2, 3].map((globalRank) => getGroupRank(group, globalRank)),
    [1, 2, 0],
  );
  if (group.rank >= 0)
    assert.deepEqual(
      [getGlobalRank(group, getRank(group)), getGroupRank(group, rank)],
      [rank, getRank(group)],
    );
  assert.deepEqual(
    [getProcessGroupRanks(group), getProcessGroupRanks(), getProcessGroupRanks(worldGroup())],
    [
      [3, 1, 2],
      [0, 1, 2, 3],
      [0, 1, 2, 3],
    ],
  );
  assert.deepEqual([getGlobalRank(worldGroup(), 2), getGroupRank(worldGroup(), 2)], [2, 2]);
  getProcessGroupRanks(group).reverse();
  assert.deepEqual(group.ranks, [3, 1, 2]);
}

describeOverEngines('global ranks and group ranks', () => {
  it('convert into each other, on members and other ranks', async () => {
    await onRanks(4, checkPlaces);
  });

  it('can be queried for the group of a mesh dimension', async () => {
    await onRanks(4, (rank) => {
      const mesh = initDeviceMesh('cpu', [2, 2], { meshDimNames: ['dp', 'tp'] });
      const row = rank < 2 ? 0 : 2;
      assert.deepEqual(getProcessGroupRanks(mesh.getGroup('tp')), [row, row + 1]);
      assert.equal(getGroupRank(mesh.getGroup('dp'), rank), row / 2);
    });
  });

  it('are refused if the group has no such rank', async () => {
    await onRanks(2, () => {
      const group = newGroup([1]);
      const wrong: [() => unknown, RegExp][] = [
        [
          () => getGlobalRank(group, 1),
          /^ArgumentError.*getGlobalRank: expected groupRank to be a whole number from 0 to 0, got 1/,
        ],
        [() => getGlobalRank(group, -1), /getGlobalRank: expected groupRank to be .*, got -1/],
        [
          () => getGlobalRank(group, '0' as never),
          /getGlobalRank: expected groupRank to be .*, got '0'/,
        ],
        [
          () => getGroupRank(group, 0),
          /^ArgumentError.*getGroupRank: globalRank 0 is not of group "group0" \(ranks 1\)/,
        ],
        [() => getGroupRank(worldGroup(), 2), /getGroupRank: globalRank 2 is not of group "world"/],
        [
          () => getGroupRank(group, 0.5),
          /getGroupRank: expected globalRank to be a whole number from 0, got 0\.5/,
        ],
        [
          () => getGlobalRank(undefined as never, 0),
          /getGlobalRank: expected group to be a ProcessGroup, as newGroup returns it, got undefined/,
        ],
        [() => getGroupRank([1] as never, 0), /getGroupRank: expected group to be a ProcessGroup/],
        [
          () => getProcessGroupRanks(null as never),
          /getProcessGroupRanks: expected group to be a ProcessGroup/,
        ],
        [() => getBackend('world' as never), /getBackend: expected group to be a ProcessGroup/],
      ];
      for (const [call, text] of wrong)
        assert.throws(
          call,
          (error: Error) => error instanceof ArgumentError && text.test(String(error)),
        );
    });
  });
});

describe('global ranks and group ranks', () => {
  it('are the same in processes', withRanks(4, checkPlaces, { mode: 'process' }));

  it('cannot be queried without a process group', () => {
    const group = {} as ProcessGroup;
    for (const call of [
      () => getBackend(),
      () => getProcessGroupRanks(),
      () => getGlobalRank(group, 0),
      () => getGroupRank(group, 0),
    ]) {
      assert.throws(
        call,
        (error: Error) =>
          error instanceof DistributedError &&
          /there is no process group\. Call/.test(error.message),
      );
    }
  });

  it('can be queried in a fake world of any size', async () => {
    await initProcessGroup('fake', { rank: 5, worldSize: 4096 });
    try {
      const group = newGroup([5, 4000]);
      assert.deepEqual(
        [getGlobalRank(group, 1), getGroupRank(group, 4000), getProcessGroupRanks().length],
        [4000, 1, 4096],
      );
      assert.deepEqual([getBackend(), getBackend(group)], ['fake', 'fake']);
    } finally {
      destroyProcessGroup();
    }
  });
});

describeOverEngines('getBackend', () => {
  it('returns the backend of the world and of a group to members', async () => {
    const host = isOverGloo() ? 'gloo' : 'shm';
    const expected =
      cuda.isAvailable() && cuda.deviceCount() >= 3
        ? new RegExp(`^cpu:${host},cuda:`)
        : new RegExp(`^${host}$`); // ranks that share GPUs meet as CPUs do
    await onRanks(3, async (rank) => {
      const group = newGroup([2, 0]);
      assert.match(getBackend(), expected);
      if (rank !== 1) assert.match(getBackend(group), expected);
      else
        assert.throws(
          () => getBackend(group),
          /^DistributedError.*getBackend: rank 1 is not a member of group "group0"/,
        );
      const t = ones([1]);
      allReduce(t);
      assert.deepEqual([...(await t.read())], [3]);
      if (rank === 1) return;
      destroyProcessGroup(group);
      assert.throws(() => getBackend(group), /getBackend: group "group0" has ended/);
    });
  });
});

describe('getBackend', () => {
  const backendIn = (backend: string): Promise<string[]> =>
    launch(2, () => getBackend(), { backend });

  it('returns the backend that the program named', async () => {
    for (const name of ['shm', 'nccl', 'cpu:shm,cuda:nccl'])
      assert.deepEqual(await backendIn(name), [name, name]);
    assert.deepEqual(await backendIn('cpu:shm'), ['shm', 'shm']);
  });

  it('returns gloo if the program named it', async function () {
    skipWithoutGloo(this);
    for (const name of ['gloo', 'cpu:gloo,cuda:nccl'])
      assert.deepEqual(await backendIn(name), [name, name]);
  });

  it(
    'returns the same in processes',
    withRanks(2, () => assert.equal(getBackend(), 'shm'), { mode: 'process' }),
  );

  it('returns shm in a program of one rank', async function () {
    if (cuda.isAvailable()) return skipBecause(this, 'this machine has GPUs');
    await initProcessGroup();
    assert.equal(getBackend(), 'shm');
    destroyProcessGroup();
  });
});
