/**
 * A mismatch of the meshes of two ranks is an error at creation that names both meshes and call
 * sites.
 */
import assert from 'node:assert/strict';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  allReduce,
  barrier,
  type CollectiveError,
  DeviceMesh,
  destroyProcessGroup,
  initDeviceMesh,
} from '../../../lib/distributed.js';
import { ones } from '../../../lib/index.js';
import { describeOverEngines, errorOf, onRanks } from '../support/on-ranks.js';

const here = `mismatched-meshes\\.test${path.extname(import.meta.url)}:\\d+`;
const named = (...meshDimNames: string[]): DeviceMesh =>
  initDeviceMesh('cpu', [2, 2], { meshDimNames });

/** What most ranks make, and rank 1; how messages name the two. */
const differences: [
  what: string,
  most: () => DeviceMesh,
  one: () => DeviceMesh,
  texts: [string, string],
][] = [
  [
    'of another shape',
    () => initDeviceMesh('cpu', [2, 2]),
    () => initDeviceMesh('cpu', [4]),
    [
      'DeviceMesh\\(cpu, 2, 2\\) of the ranks \\[\\[0, 1\\], \\[2, 3\\]\\]',
      'DeviceMesh\\(cpu, 4\\) of the ranks \\[0, 1, 2, 3\\]',
    ],
  ],
  [
    'of other names',
    () => named('dp', 'tp'),
    () => named('tp', 'dp'),
    [
      'DeviceMesh\\(cpu, dp: 2, tp: 2\\) of the ranks .*',
      'DeviceMesh\\(cpu, tp: 2, dp: 2\\) of the ranks .*',
    ],
  ],
  [
    'of the ranks in another order',
    () => DeviceMesh('cpu', [3, 1, 0]),
    () => DeviceMesh('cpu', [0, 1, 3]),
    [
      'DeviceMesh\\(cpu, 3\\) of the ranks \\[3, 1, 0\\]',
      'DeviceMesh\\(cpu, 3\\) of the ranks \\[0, 1, 3\\]',
    ],
  ],
];

describeOverEngines('a mismatch of meshes between ranks', () => {
  for (const [what, most, one, [mostText, oneText]] of differences) {
    it(`is reported to the later rank at once, with both meshes and call sites: ${what}`, async () => {
      const begin = Date.now();
      const error = await errorOf(
        onRanks(4, async (rank) => {
          if (rank === 1) await sleep(30);
          (rank === 1 ? one : most)();
          if (rank !== 1) await sleep(100);
        }),
      );
      const [op] = /initDeviceMesh|DeviceMesh/.exec(
        error.message.slice('rank 1 failed: '.length),
      ) ?? [''];
      const said = `^rank 1 failed: ${op} \\(group creation 1 of group "world"\\): rank [023] created ${mostText} at .*${here}.*, this rank ${oneText} at .*${here}.*\\. All ranks make`;
      assert.match(error.message, new RegExp(said));
      const { details } = error.cause as CollectiveError;
      assert.deepEqual(
        [details.op, details.group, details.sequence, details.ranks?.length],
        [op, 'world', 1, 1],
      );
      assert.deepEqual(
        details.calls?.map((call) => [call.op, new RegExp(here).test(call.where)]),
        [
          [op, true],
          [op, true],
        ],
      );
      assert.ok(Date.now() - begin < 2_000);
    });
  }

  it('is an error also of ranks that wait in a group of the mesh, and of later calls there', async () => {
    const begin = Date.now();
    const told = await onRanks(4, async (rank) => {
      if (rank === 1) {
        await sleep(100);
        assert.throws(() => initDeviceMesh('cpu', [4]), /created DeviceMesh\(cpu, 2, 2\)/);
        await sleep(700);
        return [];
      }
      const mesh = initDeviceMesh('cpu', [2, 2]);
      if (rank === 2) return [];
      const x = ones([2]);
      allReduce(x, { group: mesh.getGroup(rank === 3 ? 0 : 1) }); // both with rank 1
      const first = (await errorOf(x.read())) as CollectiveError;
      const later = await errorOf(
        (async () => allReduce(ones([2]), { group: mesh.getGroup(rank === 3 ? 1 : 0) }))(),
      );
      assert.ok(Date.now() - begin < 600, 'it waited until the other had left');
      return [first, later] as CollectiveError[];
    });
    for (const rank of [0, 3]) {
      const [first, later] = told[rank] as [CollectiveError, CollectiveError];
      const both = `rank 1 created DeviceMesh\\(cpu, 4\\) of the ranks \\[0, 1, 2, 3\\] at .*${here}.*, (rank ${rank}|this rank) DeviceMesh\\(cpu, 2, 2\\) of the ranks .* at .*${here}`;
      assert.match(first.message, new RegExp(`allReduce.* at .*${here}.*${both}`));
      assert.match(first.message, /initDeviceMesh \(group creation 1 of group "world"\)/);
      assert.deepEqual(
        [first.details.op, first.details.sequence, first.details.ranks],
        ['allReduce', 1, [1]],
      );
      assert.deepEqual(first.details.calls?.find((call) => call.rank === 1)?.op, 'initDeviceMesh');
      assert.match(later.message, new RegExp(both));
      assert.deepEqual(
        [later.name.split(' ')[0], later.details.op, later.details.ranks],
        ['CollectiveError', 'allReduce', [1]],
      );
    }
  });

  it('ends the world group if it is a group of the mesh, where calls for different dims would meet', async () => {
    const told = await onRanks(4, async (rank) => {
      const [shape, wait] = rank < 2 ? [[1, 4], 0] : [[4, 1], 50];
      return errorOf(
        (async () => {
          await sleep(wait);
          const mesh = initDeviceMesh('cpu', shape, { meshDimNames: ['dp', 'tp'] });
          await sleep(100);
          const t = ones([1]);
          allReduce(t, { group: mesh.getGroup('tp') });
          await t.read();
        })(),
      );
    });
    for (const error of told)
      assert.match(error.message, /created DeviceMesh\(cpu, dp: [14], tp: [14]\)/);
  });

  it('does not end groups that another mesh has as well, nor otherwise the world group', async () => {
    await onRanks(4, async (rank) => {
      const sum = async (group?: ReturnType<DeviceMesh['getGroup']>): Promise<number> => {
        const t = ones([1]);
        allReduce(t, group === undefined ? {} : { group });
        return t.itemAsync();
      };
      const mesh = named('dp', 'tp');
      assert.equal(await sum(mesh.getGroup('tp')), 2);
      if (rank === 1) {
        await sleep(50);
        assert.throws(
          () => initDeviceMesh('cpu', [4]),
          /created DeviceMesh\(cpu, pp: 1, dp: 2, tp: 2\)/,
        );
      } else {
        const other = initDeviceMesh('cpu', [1, 2, 2], { meshDimNames: ['pp', 'dp', 'tp'] });
        assert.equal(other.getGroup('tp'), mesh.getGroup('tp'));
        await sleep(100);
      }
      assert.equal(await sum(mesh.getGroup('tp')), 2);
      assert.equal(await sum(), 4);
    });
  });

  it('does not affect other meshes and groups', async () => {
    await onRanks(3, async (rank) => {
      const before = DeviceMesh('cpu', [0, 2], { meshDimNames: ['pp'] });
      if (rank === 1) await sleep(30);
      if (rank === 1)
        assert.throws(() => initDeviceMesh('cpu', [3, 1]), /created DeviceMesh\(cpu, 1, 3\)/);
      else initDeviceMesh('cpu', [1, 3]);
      const x = ones([1]);
      if (rank !== 1) allReduce(x, { group: before.getGroup() });
      assert.equal(await x.itemAsync(), rank === 1 ? 1 : 2);
    });
  });

  it('is no error if ranks create equal meshes in different forms, nor in a new world', async () => {
    await onRanks(4, async (rank) => {
      const grid = (): DeviceMesh => named('dp', 'tp');
      const part = (): DeviceMesh =>
        DeviceMesh('cpu', rank < 2 ? [0, 1] : [2, 3], { meshDimNames: ['tp'] });
      for (const make of rank % 2 === 0 ? [grid, part, grid] : [part, grid]) make();
      initDeviceMesh('cpu', [4]);
      initDeviceMesh('cpu', [4], { meshDimNames: ['all'] });
      await barrier();
    });
    await onRanks(2, async (rank) => {
      DeviceMesh('cpu', [rank]);
      destroyProcessGroup();
    });
  });
});
