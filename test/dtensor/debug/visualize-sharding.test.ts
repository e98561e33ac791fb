/**
 * Drawings of distributed tensors as text and SVG.
 */
import assert from 'node:assert/strict';
import {
  DTensor,
  destroyProcessGroup,
  distributeTensor,
  initDeviceMesh,
  initProcessGroup,
  Partial,
  Replicate,
  Shard,
  visualizeSharding,
} from '../../../lib/distributed.js';
import { ones, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';

/** What was printed in `fn`. */
function printed(fn: () => void): string[] {
  const { log } = console;
  const lines: string[] = [];
  console.log = (text: string) => void lines.push(text);
  try {
    fn();
  } finally {
    console.log = log;
  }
  return lines;
}

describe('visualizeSharding', () => {
  it(
    'draws the ranks of each shard, uneven shards and replicas, and prints once',
    withRanks(4, async (rank) => {
      const mesh = initDeviceMesh('cpu', [2, 2], { meshDimNames: ['dp', 'tp'] });
      const t = distributeTensor(ones([5, 4]), mesh, [Shard(0), Shard(1)]);
      let text = '';
      const lines = printed(() => {
        text = visualizeSharding(t);
      });
      assert.deepEqual(lines, rank === 0 ? [text] : []);
      assert.equal(
        text,
        [
          'float32[5, 4] on mesh (dp: 2, tp: 2): [Shard(0), Shard(1)]',
          '              dim 1 [0:2]   dim 1 [2:4]',
          '            ┌─────────────┬─────────────┐',
          'dim 0 [0:3] │ dp=0, tp=0  │ dp=0, tp=1  │',
          '            ├─────────────┼─────────────┤',
          'dim 0 [3:5] │ dp=1, tp=0  │ dp=1, tp=1  │',
          '            └─────────────┴─────────────┘',
        ].join('\n'),
      );
      const copies = printed(
        () => void visualizeSharding(distributeTensor(ones([3]), mesh, [Shard(0), Replicate()])),
      );
      if (rank === 0)
        assert.match(
          copies[0] as string,
          /│ dp=0, tp=0 \| dp=0, tp=1 │ dp=1, tp=0 \| dp=1, tp=1 │/,
        );
    }),
  );

  it(
    'names ranks by mesh coordinates if mesh dims have no names',
    withRanks(4, async () => {
      const t = distributeTensor(ones([4, 2]), initDeviceMesh('cpu', [2, 2]), [
        Shard(0),
        Replicate(),
      ]);
      let text = '';
      printed(() => {
        text = visualizeSharding(t);
      });
      assert.match(text, /^dim 0 \[0:2\] │ mesh\[0, 0\] \| mesh\[0, 1\] │$/m);
    }),
  );

  it(
    'draws SVG, and tensors of many dims along the sharded ones',
    withRanks(3, async () => {
      const mesh = initDeviceMesh('cpu', [3]);
      const svg = visualizeSharding(distributeTensor(ones([2, 3, 7]), mesh, [Shard(2)]), {
        format: 'svg',
      });
      assert.match(svg, /^<svg xmlns/);
      assert.equal(svg.match(/<rect /g)?.length, 1 + 3);
      assert.match(svg, />mesh\[2\]</);
      assert.match(svg, />6:7</);
      assert.match(
        visualizeSharding(distributeTensor(ones([]), mesh), { format: 'svg' }),
        />mesh\[0\] \|</,
      );
      assert.equal(
        visualizeSharding(distributeTensor(ones([2]), mesh, [Shard(0)]), { format: 'svg' }).match(
          /<rect /g,
        )?.length,
        1 + 2,
      );
      assert.throws(
        () => visualizeSharding(ones([2])),
        /expected a distributed tensor, got a plain one/,
      );
      assert.throws(
        () => visualizeSharding(distributeTensor(ones([2]), mesh), { format: 'png' as never }),
        /expected format to be one of 'text', 'svg'/,
      );
    }),
  );

  it(
    'distinguishes replicas from partial values, counts many, and lists ranks without data',
    withRanks(4, async (rank) => {
      const mesh = initDeviceMesh('cpu', [2, 2], { meshDimNames: ['dp', 'tp'] });
      const flat = initDeviceMesh('cpu', [4]);
      const drawn = (t: Tensor): string => {
        let text = '';
        printed(() => void (text = visualizeSharding(t)));
        return text;
      };
      assert.match(
        drawn(distributeTensor(ones([3]), mesh, [Shard(0), Replicate()])),
        /\na \| b: replicated on each of them$/,
      );
      const terms = drawn(DTensor.fromLocal(ones([4, 2]), mesh, [Partial(), Shard(0)]));
      assert.match(
        terms,
        /│ dp=0, tp=0 \+ dp=1, tp=0 │[\s\S]*\na \+ b: partial values, not reduced yet$/,
      );
      assert.match(
        drawn(DTensor.fromLocal(ones([2]), mesh, [Partial('max'), Replicate()])),
        /max\(\(dp=0, tp=0 \| dp=0, tp=1\), \(dp=1, tp=0 \| dp=1, tp=1\)\)/,
      );
      assert.match(
        drawn(distributeTensor(ones([2]), flat, [Shard(0)])),
        /│ mesh\[0\] +│ mesh\[1\] +│\n.*\nranks without data: mesh\[2\]; mesh\[3\] \(2 of 4 ranks\)$/,
      );
      assert.match(
        drawn(distributeTensor(ones([1, 1]), mesh, [Shard(0), Shard(1)])),
        /ranks without data: dp=1; tp=1 \(3 of 4 ranks\)$/,
      );
      assert.match(
        drawn(distributeTensor(ones([0, 4]), mesh, [Shard(0), Replicate()])),
        /ranks without data: all 4 ranks$/,
      );
      const svg = visualizeSharding(DTensor.fromLocal(ones([2]), flat, [Partial()]), {
        format: 'svg',
      });
      assert.match(svg, />mesh\[0\] \+<.*>mesh\[3\]</);
      assert.match(svg, />a \+ b: partial values, not reduced yet</);
      assert.equal(rank, mesh.getRank());
    }),
  );

  describe('in a world of 4,096 ranks', () => {
    before(() => initProcessGroup('fake', { rank: 1, worldSize: 4096 }));
    after(() => destroyProcessGroup());

    it('leaves out the middle of many shards, and counts them', () => {
      const flat = initDeviceMesh('cpu', [4096]);
      const few = visualizeSharding(distributeTensor(ones([8]), flat, [Shard(0)]));
      assert.match(few, /│ mesh\[2\] +│ … +│ mesh\[6\] /);
      assert.match(few, /… 3 more/);
      assert.match(few, /\nranks without data: mesh\[8\] … mesh\[4095\] \(4088 of 4096 ranks\)$/);
      const square = initDeviceMesh('cpu', [64, 64], { meshDimNames: ['dp', 'tp'] });
      const many = visualizeSharding(
        distributeTensor(ones([640, 640]), square, [Shard(0), Shard(1)]),
      );
      assert.ok(
        many.split('\n').length < 24 && many.split('\n').every((line) => line.length < 160),
        many,
      );
      assert.match(
        visualizeSharding(distributeTensor(ones([640]), square, [Shard(0), Replicate()])),
        /│ dp=0, tp=0…63 \(64 replicas\) │/,
      );
      const svg = visualizeSharding(
        distributeTensor(ones([640, 640]), square, [Shard(0), Shard(1)]),
        { format: 'svg' },
      );
      assert.equal(svg.match(/<rect /g)?.length, 1 + 8 * 6);
      assert.match(svg, />… 57 more</);
    });
  });
});
