/**
 * Meshes on every rank: names, slices, flattened dimensions, groups, ranks outside, and refused
 * arguments.
 */
import assert from 'node:assert/strict';
import { inspect } from 'node:util';
import { RankRuntime } from '../../../lib/core/rank-runtime.js';
import { enterWorld } from '../../../lib/distributed/process-group/new-group.js';
import { runAsRank } from '../../../lib/distributed/process-group/rank-context.js';
import {
  allReduce,
  DeviceMesh,
  destroyProcessGroup,
  getRank,
  initDeviceMesh,
  newGroup,
  worldGroup,
} from '../../../lib/distributed.js';
import { ones, tensor } from '../../../lib/index.js';
import { reusedRanks } from '../support/reused-ranks.js';

const NAMES = { meshDimNames: ['pp', 'dp', 'tp'] };

describe('a DeviceMesh', () => {
  const ranks = reusedRanks(8);
  const each = (name: string, fn: (rank: number) => void | Promise<void>): void => {
    it(name, async () => void (await ranks.run(fn)));
  };
  const refuses = (name: string, message: RegExp, fn: () => unknown): void =>
    each(`refuses ${name}`, () => assert.throws(fn, message));
  const cube = (): DeviceMesh => initDeviceMesh('cpu', [2, 2, 2], NAMES);

  each("knows its sizes and this rank's coordinate", (rank) => {
    const mesh = cube();
    assert.deepEqual(
      [
        mesh.size(),
        mesh.size(0),
        mesh.size(-1),
        mesh.size('dp'),
        mesh.ndim,
        mesh.shape,
        mesh.deviceType,
      ],
      [8, 2, 2, 2, 3, [2, 2, 2], 'cpu'],
    );
    const coordinate = [rank >> 2, (rank >> 1) & 1, rank & 1];
    assert.deepEqual(mesh.getCoordinate(), coordinate);
    assert.deepEqual(
      ['pp', 1, -1].map((dim) => mesh.getLocalRank(dim)),
      coordinate,
    );
    assert.equal(mesh.getRank(), rank);
    assert.deepEqual(mesh.mesh, [
      [
        [0, 1],
        [2, 3],
      ],
      [
        [4, 5],
        [6, 7],
      ],
    ]);
  });

  each('is created from nested arrays, lists and tensors of ranks, with and without new', () => {
    const called = DeviceMesh('cpu', [
      [3, 1],
      [0, 2],
    ]);
    const constructed = new DeviceMesh(
      'cpu',
      tensor([
        [3, 1],
        [0, 2],
      ]),
    );
    assert.equal(called, constructed);
    assert.ok(called instanceof DeviceMesh && cube() instanceof DeviceMesh);
    assert.ok(!({} instanceof (DeviceMesh as unknown as new () => object)));
    assert.deepEqual(DeviceMesh('cpu', [2, 5]).shape, [2]);
  });

  each('prints its device type, names and sizes', () => {
    assert.equal(inspect(cube()), 'DeviceMesh(cpu, pp: 2, dp: 2, tp: 2)');
    assert.equal(String(initDeviceMesh('cpu', [8])), 'DeviceMesh(cpu, 8)');
  });

  each(
    'is the same object when created again, and equal to one of the same ranks, names and device type',
    () => {
      const mesh = cube();
      assert.equal(mesh, cube());
      assert.ok(mesh.equals(mesh) && mesh.get('tp').equals(mesh.get('tp')));
      const alike = DeviceMesh('cpu', mesh.mesh, NAMES);
      assert.ok(alike.equals(mesh));
      assert.ok(!initDeviceMesh('cpu', [2, 2, 2]).equals(mesh));
      assert.ok(!initDeviceMesh('cpu', [2, 4]).equals(mesh));
      assert.ok(!initDeviceMesh('cuda', [2, 2, 2], NAMES).equals(mesh));
      assert.ok(!mesh.get('pp').equals(mesh.get('dp')));
    },
  );

  each('has a group for each dimension, which is the world group if it has all ranks', (rank) => {
    const mesh = cube();
    assert.deepEqual(mesh.getGroup('pp').ranks, [rank & 3, (rank & 3) + 4]);
    assert.deepEqual(mesh.getGroup(-1).ranks, [rank & 6, (rank & 6) + 1]);
    assert.deepEqual(
      mesh.getAllGroups(),
      [0, 1, 2].map((dim) => mesh.getGroup(dim)),
    );
    assert.equal(initDeviceMesh('cpu', [8]).getGroup(), worldGroup());
    assert.notEqual(DeviceMesh('cpu', [1, 0, 2, 3, 4, 5, 6, 7]).getGroup(), worldGroup());
  });

  each('gives slices by one or several names in any order, which share its groups', (rank) => {
    const mesh = cube();
    const tp = mesh.get('tp');
    assert.deepEqual(
      [tp.ranks, tp.meshDimNames, tp.ndim, tp.getLocalRank()],
      [[rank & 6, (rank & 6) + 1], ['tp'], 1, rank & 1],
    );
    assert.equal(tp.getGroup(), mesh.getGroup('tp'));
    assert.equal(tp, mesh.get(['tp']));
    const outer = mesh.get(['pp', 'dp']);
    assert.deepEqual(
      outer.ranks,
      [0, 2, 4, 6].map((base) => base + (rank & 1)),
    );
    assert.deepEqual(outer.getCoordinate(), [rank >> 2, (rank >> 1) & 1]);
    assert.equal(outer.getGroup('dp'), mesh.getGroup('dp'));
    assert.equal(outer.get('dp'), mesh.get('dp'));
    const swapped = mesh.get(['tp', 'pp']);
    assert.deepEqual(
      [swapped.shape, swapped.getCoordinate()],
      [
        [2, 2],
        [rank & 1, rank >> 2],
      ],
    );
    assert.equal(swapped.getGroup('tp'), mesh.getGroup('tp'));
    assert.equal(mesh.get(['pp', 'dp', 'tp']), mesh);
  });

  each('flattens dimensions into one, which every slice finds by its name', async (rank) => {
    const mesh = DeviceMesh('cpu', cube().mesh, { meshDimNames: ['a', 'b', 'c'] });
    const flat = mesh.get(['a', 'b'])._flatten();
    assert.deepEqual(
      [flat.meshDimNames, flat.ranks, flat.getLocalRank()],
      [['a_b'], [0, 2, 4, 6].map((base) => base + (rank & 1)), rank >> 1],
    );
    assert.equal(mesh.get('a_b'), flat);
    assert.equal(mesh.get('c').get('a_b'), flat);
    assert.equal(mesh.get(['a', 'b'])._flatten(), flat);
    assert.equal(flat._flatten(), flat);
    const two = mesh.get(['a_b', 'c']);
    assert.deepEqual(
      [two.shape, two.ranks, two.getGroup('a_b')],
      [[4, 2], [0, 1, 2, 3, 4, 5, 6, 7], flat.getGroup()],
    );
    assert.deepEqual(mesh._flatten('all').size(), 8);
    const sum = ones([1]);
    allReduce(sum, { group: flat.getGroup() });
    assert.equal(await sum.itemAsync(), 4);
  });

  each(
    'keeps flattened dimensions of other meshes apart, and slices from meshes of the same ranks',
    () => {
      const one = DeviceMesh(
        'cpu',
        [
          [0, 1, 2, 3],
          [4, 5, 6, 7],
        ],
        { meshDimNames: ['x', 'y'] },
      );
      one._flatten('xy');
      const other = DeviceMesh(
        'cpu',
        [
          [0, 1],
          [2, 3],
          [4, 5],
          [6, 7],
        ],
        { meshDimNames: ['x', 'y'] },
      );
      assert.throws(
        () => other.get('xy'),
        /there is no dimension 'xy' in DeviceMesh\(cpu, x: 4, y: 2\); it has \['x', 'y'\]/,
      );
      one.get('y');
      const alone = DeviceMesh('cpu', [0, 1, 2, 3], { meshDimNames: ['y'] });
      const next = initDeviceMesh('cpu', [4, 2]).getGroup(0).name;
      assert.ok(alone.size() === 4 && next.length > 0);
    },
  );

  it('has the same id on ranks inside and outside of it', async () => {
    const names = await ranks.run(() => {
      const mesh = DeviceMesh(
        'cpu',
        [
          [0, 1],
          [2, 3],
        ],
        { meshDimNames: ['q', 'r'] },
      );
      if (getRank() < 4) mesh.get('r').getGroup();
      DeviceMesh('cpu', [0, 1], { meshDimNames: ['r'] });
      return newGroup([0, 7]).name;
    });
    assert.equal(new Set(names).size, 1);
  });

  each('can be created from existing groups', (rank) => {
    const groups = [newGroup([0, 1, 2, 3]), newGroup([4, 5, 6, 7])];
    const own = groups[rank >> 2] as (typeof groups)[number];
    const mesh = DeviceMesh.fromGroup(own, 'cpu', { meshDimNames: ['tp'] });
    assert.deepEqual([mesh.getGroup('tp'), mesh.getLocalRank(), mesh.shape], [own, rank & 3, [4]]);
    assert.equal(DeviceMesh.fromGroup(own, 'cpu', { meshDimNames: ['tp'] }), mesh);
    const across = Array.from({ length: 4 }, (_, i) => newGroup([i, i + 4]));
    const dp = across[rank & 3] as (typeof groups)[number];
    const grid = DeviceMesh.fromGroup([dp, own], 'cpu', {
      mesh: [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
      ],
      meshDimNames: ['dp', 'tp'],
    });
    assert.deepEqual(
      [grid.getGroup('dp'), grid.getGroup('tp'), grid.get('dp').getGroup()],
      [dp, own, dp],
    );
    assert.throws(
      () =>
        DeviceMesh.fromGroup([own, dp], 'cpu', {
          mesh: [
            [0, 1, 2, 3],
            [4, 5, 6, 7],
          ],
        }),
      /expected 2 groups, of the ranks/,
    );
    assert.throws(
      () => DeviceMesh.fromGroup([dp, own], 'cpu'),
      /expected mesh to be the nested ranks/,
    );
  });

  each('cannot be created from a group of other ranks, on any rank of the group', (rank) => {
    const group = newGroup([2, 3]);
    if (rank !== 2 && rank !== 3) return;
    const from = (mesh: number[]) => () => DeviceMesh.fromGroup(group, 'cpu', { mesh });
    assert.throws(from([1, 0]), /1 groups, of the ranks \[1, 0\], got groups of \[2, 3\]/);
    assert.throws(from([4, 5, 6]), /1 groups, of the ranks \[4, 5, 6\], got groups of \[2, 3\]/);
  });

  each('exists on ranks outside of it', (rank) => {
    const mesh = DeviceMesh(
      'cpu',
      [
        [1, 2],
        [3, 4],
      ],
      { meshDimNames: ['dp', 'tp'] },
    );
    if (rank >= 1 && rank <= 4) return;
    assert.equal(mesh.getCoordinate(), null);
    assert.equal(mesh.size(), 4);
    for (const fn of [
      () => mesh.getGroup('dp'),
      () => mesh.getLocalRank('tp'),
      () => mesh.get('dp'),
      () => mesh.getAllGroups(),
    ]) {
      assert.throws(
        fn,
        new RegExp(
          `rank ${rank} is not in DeviceMesh\\(cpu, dp: 2, tp: 2\\) \\(ranks 1, 2, 3, 4\\)`,
        ),
      );
    }
  });

  refuses(
    'a group without its dimension',
    /getGroup: DeviceMesh\(cpu, pp: 2, dp: 2, tp: 2\) has 3 dimensions: give the name or number of one/,
    () => cube().getGroup(),
  );
  refuses(
    'a dimension that is not there',
    /expected meshDim to be a whole number from -3 to 2, got 3/,
    () => cube().size(3),
  );
  refuses(
    'a name that is not there',
    /there is no dimension 'ep' in .*; it has \['pp', 'dp', 'tp'\]/,
    () => cube().get('ep'),
  );
  refuses('a name of a mesh without names', /its dimensions have no names: give meshDimNames/, () =>
    initDeviceMesh('cpu', [8]).get('dp'),
  );
  refuses('a slice of nothing', /expected names to be a name, or a list of names/, () =>
    cube().get([]),
  );
  refuses('a name twice', /expected dimensions that do not overlap, got \['dp', 'dp'\]/, () =>
    cube().get(['dp', 'dp']),
  );
  refuses('a flattened dimension beside one of its own', /do not overlap/, () => {
    const mesh = DeviceMesh('cpu', cube().mesh, { meshDimNames: ['i', 'j', 'k'] });
    mesh.get(['i', 'j'])._flatten();
    mesh.get(['i_j', 'j']);
  });
  refuses('to flatten a mesh without names', /have no names/, () =>
    initDeviceMesh('cpu', [2, 4])._flatten(),
  );
  refuses('to flatten into a name that is taken', /the mesh already has a dimension "tp"/, () =>
    cube().get(['pp', 'dp'])._flatten('tp'),
  );
  refuses('more ranks than there are', /a mesh of \[4, 4\] needs 16 ranks, the world has 8/, () =>
    initDeviceMesh('cpu', [4, 4]),
  );
  refuses(
    'a rank that is not there',
    /expected each rank to be a whole number from 0 to 7, got 8/,
    () => DeviceMesh('cpu', [0, 8]),
  );
  refuses('a rank twice', /expected each rank once, got \[\[0, 1\], \[1, 2\]\]/, () =>
    DeviceMesh('cpu', [
      [0, 1],
      [1, 2],
    ]),
  );
  refuses(
    'parts of different sizes',
    /expected nested arrays of one shape, got \[2\] and \[1\]/,
    () => DeviceMesh('cpu', [[0, 1], [2]]),
  );
  refuses('no ranks', /expected the mesh to be a nested array of ranks/, () =>
    DeviceMesh('cpu', []),
  );
  refuses('too few names', /expected meshDimNames to be 2 names/, () =>
    initDeviceMesh('cpu', [2, 4], { meshDimNames: ['dp'] }),
  );
  refuses('a name for two dimensions', /each of meshDimNames once/, () =>
    initDeviceMesh('cpu', [2, 4], { meshDimNames: ['a', 'a'] }),
  );
  refuses('an unknown device type', /expected deviceType to be one of 'cpu', 'cuda'/, () =>
    initDeviceMesh('cuda:1' as 'cuda', [8]),
  );
  refuses('a size of zero', /expected each size to be a whole number from 1/, () =>
    initDeviceMesh('cpu', [0]),
  );
  refuses('an unknown option', /there is no option "names"/, () =>
    initDeviceMesh('cpu', [8], { names: [] } as object),
  );

  it('cannot be created without a process group', () =>
    assert.throws(() => initDeviceMesh('cpu', [1]), /there is no process group/));
});

describe('a DeviceMesh of 4,096 ranks', () => {
  it("creates only this rank's groups, and slices without a search over all ranks", async () => {
    await runAsRank(new RankRuntime('rank 1234'), async () => {
      const factory = (): never => assert.fail('nothing is sent');
      const context = enterWorld({
        rank: 1234,
        worldSize: 4096,
        localRank: 2,
        runtime: new RankRuntime('rank 1234'),
        store: null,
        factory,
        pending: null,
      });
      const start = performance.now();
      const mesh = initDeviceMesh('cpu', [16, 32, 8], NAMES);
      const own = mesh.getAllGroups();
      const slices = [mesh.get('tp'), mesh.get(['pp', 'dp']), mesh.get(['dp', 'tp'])._flatten()];
      const took = performance.now() - start;
      assert.deepEqual(mesh.getCoordinate(), [4, 26, 2]);
      assert.deepEqual(
        own.map(({ size }) => size),
        [16, 32, 8],
      );
      assert.deepEqual(
        slices.map((slice) => slice.size()),
        [8, 512, 256],
      );
      assert.equal(context.groups.size, 4);
      assert.ok(took < 200, `${took} ms`);
      destroyProcessGroup();
    });
  });
});
