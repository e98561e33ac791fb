/** Ops that move elements: repetition, rotation, splits, joins, grids, diagonals, padding. */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  arange,
  blockDiag,
  broadcastShapes,
  broadcastTensors,
  cartesianProd,
  columnStack,
  diag,
  diagEmbed,
  dstack,
  float32,
  hstack,
  int64,
  meshgrid,
  nn,
  ShapeError,
  type Tensor,
  tensor,
  trilIndices,
  triuIndices,
  vstack,
} from '../../lib/index.js';

const whole = (data: Parameters<typeof tensor>[0]): Tensor => tensor(data, { dtype: int64 });
const grid = (): Tensor => arange(6).reshape(2, 3); // [[0, 1, 2], [3, 4, 5]]

const cases: Record<string, [actual: () => Tensor | readonly Tensor[], expected: unknown]> = {
  'tile of a whole tensor': [
    () => arange(2).tile(2, 2),
    [
      [0, 1, 0, 1],
      [0, 1, 0, 1],
    ],
  ],
  'repeatInterleave of elements': [() => arange(3).repeatInterleave(2), [0, 0, 1, 1, 2, 2]],
  'repeatInterleave of slices': [
    () => grid().repeatInterleave(2, 0),
    [
      [0, 1, 2],
      [0, 1, 2],
      [3, 4, 5],
      [3, 4, 5],
    ],
  ],
  'repeatInterleave with one count for each slice': [
    () => arange(3).repeatInterleave(whole([2, 0, 3])),
    [0, 0, 2, 2, 2],
  ],
  'roll of the flattened tensor': [
    () => grid().roll(1),
    [
      [5, 0, 1],
      [2, 3, 4],
    ],
  ],
  'roll along several dims': [
    () => grid().roll([1, -1], [0, 1]),
    [
      [4, 5, 3],
      [1, 2, 0],
    ],
  ],
  'flip of several dims': [
    () => grid().flip(0, 1),
    [
      [5, 4, 3],
      [2, 1, 0],
    ],
  ],
  'rot90 from the first dim to the second': [
    () => grid().rot90(),
    [
      [2, 5],
      [1, 4],
      [0, 3],
    ],
  ],
  'rot90 backwards': [
    () => grid().rot90(-1),
    [
      [3, 0],
      [4, 1],
      [5, 2],
    ],
  ],
  'movedim of several dims': [
    () => tensor([...arange(24).reshape(2, 3, 4).movedim([0, 1], [-1, -2]).shape]),
    [4, 3, 2],
  ],
  'T with all dims reversed': [() => tensor([...arange(24).reshape(2, 3, 4).T.shape]), [4, 3, 2]],
  'mT with the last two dims exchanged': [
    () => tensor([...arange(24).reshape(2, 3, 4).mT.shape]),
    [2, 4, 3],
  ],
  'tensorSplit into uneven chunks': [
    () => arange(7).tensorSplit(3),
    [
      [0, 1, 2],
      [3, 4],
      [5, 6],
    ],
  ],
  'tensorSplit at indices': [() => arange(5).tensorSplit([1, 3]), [[0], [1, 2], [3, 4]]],
  'hsplit along columns': [
    () => grid().hsplit([1]),
    [
      [[0], [3]],
      [
        [1, 2],
        [4, 5],
      ],
    ],
  ],
  'hstack of vectors': [() => hstack([arange(2), arange(1)]), [0, 1, 0]],
  'vstack of vectors': [
    () => vstack([arange(2), arange(2)]),
    [
      [0, 1],
      [0, 1],
    ],
  ],
  'dstack of vectors': [
    () => dstack([arange(2), arange(2)]),
    [
      [
        [0, 0],
        [1, 1],
      ],
    ],
  ],
  'columnStack of vectors': [
    () => columnStack([arange(2), arange(2)]),
    [
      [0, 0],
      [1, 1],
    ],
  ],
  broadcastTensors: [
    () => broadcastTensors(arange(2), arange(2).reshape(2, 1)),
    [
      [
        [0, 1],
        [0, 1],
      ],
      [
        [0, 0],
        [1, 1],
      ],
    ],
  ],
  "meshgrid with 'ij' indexing": [
    () => meshgrid([arange(2), arange(3)])[1] as Tensor,
    [
      [0, 1, 2],
      [0, 1, 2],
    ],
  ],
  "meshgrid with 'xy' indexing": [
    () => meshgrid([arange(2), arange(3)], { indexing: 'xy' })[0] as Tensor,
    [
      [0, 1],
      [0, 1],
      [0, 1],
    ],
  ],
  cartesianProd: [
    () => cartesianProd(arange(2), whole([5, 6])),
    [
      [0, 5],
      [0, 6],
      [1, 5],
      [1, 6],
    ],
  ],
  blockDiag: [
    () => blockDiag(whole([[1, 2]]), whole([[3], [4]])),
    [
      [1, 2, 0],
      [0, 0, 3],
      [0, 0, 4],
    ],
  ],
  'diag of a vector above the diagonal': [
    () => diag(whole([1, 2]), 1),
    [
      [0, 1, 0],
      [0, 0, 2],
      [0, 0, 0],
    ],
  ],
  'diag of a matrix': [() => grid().diag(), [0, 4]],
  'diagEmbed in the first and last dim': [
    () => tensor([...diagEmbed(arange(6).reshape(2, 3), 0, 0, 2).shape]),
    [3, 2, 3],
  ],
  triuIndices: [
    () => triuIndices(2, 3, { offset: 1 }),
    [
      [0, 0, 1],
      [1, 2, 2],
    ],
  ],
  trilIndices: [
    () => trilIndices(2, 2),
    [
      [0, 1, 1],
      [0, 0, 1],
    ],
  ],
  'pad with the sizes of the last dim first': [
    () => nn.functional.pad(grid(), [1, 0, 0, 1]),
    [
      [0, 0, 1, 2],
      [0, 3, 4, 5],
      [0, 0, 0, 0],
    ],
  ],
  'pad by reflection with a negative size': [
    () => nn.functional.pad(arange(5), [-1, 2], { mode: 'reflect' }),
    [1, 2, 3, 4, 3, 2],
  ],
  'pad by reflection of removed elements': [
    () => nn.functional.pad(arange(5), [-4, 4], { mode: 'reflect' }),
    [4, 3, 2, 1, 0],
  ],
  'pad by replication with a negative size': [
    () => nn.functional.pad(arange(5), [3, -3], { mode: 'replicate' }),
    [0, 0, 0, 0, 1],
  ],
  'pad by replication with negative sizes at both ends': [
    () => nn.functional.pad(arange(5), [-1, -1], { mode: 'replicate' }),
    [1, 2, 3],
  ],
  'circular pad with a negative size': [
    () => nn.functional.pad(arange(5), [2, -1], { mode: 'circular' }),
    [2, 3, 0, 1, 2, 3],
  ],
  'circular pad that removes everything': [
    () => nn.functional.pad(arange(5), [-2, -3], { mode: 'circular' }),
    [],
  ],
  'pad by reflection without the edge': [
    () => nn.functional.pad(arange(3), [2, 1], { mode: 'reflect' }),
    [2, 1, 0, 1, 2, 1],
  ],
  'pad by replication of the edge': [
    () => nn.functional.pad(arange(3), [2, 1], { mode: 'replicate' }),
    [0, 0, 0, 1, 2, 2],
  ],
  'circular pad': [
    () => nn.functional.pad(arange(3), [2, 1], { mode: 'circular' }),
    [1, 2, 0, 1, 2, 0],
  ],
  'pad with negative sizes': [() => nn.functional.pad(arange(4), [-1, -1]), [1, 2]],
};

describe('ops that move elements', () => {
  for (const [what, [actual, expected]] of Object.entries(cases)) {
    it(`compute ${what}`, () => {
      const got = actual();
      assert.deepEqual(
        Array.isArray(got) ? got.map((t: Tensor) => t.tolist()) : (got as Tensor).tolist(),
        expected,
      );
    });
  }

  it('iterate over dim 0 as views by for-of', () => {
    const t = grid();
    const rows = [...t];
    assert.equal(t.length, 2);
    assert.deepEqual(
      rows.map((r) => r.tolist()),
      [
        [0, 1, 2],
        [3, 4, 5],
      ],
    );
    assert.equal(rows[1]?.isSetTo(t.select(0, 1)), true);
    assert.throws(() => [...tensor(1)], ShapeError);
    assert.throws(() => tensor(1).length, ShapeError);
  });

  it('name the argument that does not fit', () => {
    assert.throws(() => grid().roll([1, 2]), ArgumentError);
    assert.throws(() => grid().repeatInterleave(-1), ArgumentError);
    assert.throws(() => arange(3).repeatInterleave(whole([1, 2])), ShapeError);
    assert.throws(() => broadcastShapes([2], [3]), ShapeError);
    assert.deepEqual(broadcastShapes([2, 1], [3], []), [2, 3]);
    assert.throws(() => nn.functional.pad(grid(), [1]), ArgumentError);
    assert.throws(() => nn.functional.pad(arange(3), [3, 0], { mode: 'reflect' }), ArgumentError);
    for (const mode of ['reflect', 'replicate'] as const)
      assert.throws(() => nn.functional.pad(arange(3), [-1, -2], { mode }), ShapeError);
    assert.throws(() => nn.functional.pad(arange(3), [-2, -2], { mode: 'circular' }), ShapeError);
    assert.throws(() => nn.functional.pad(arange(5), [-4, 4], { mode: 'circular' }), ArgumentError);
    assert.throws(() => meshgrid([grid()]), ShapeError);
    assert.throws(() => tensor(1, { dtype: float32 }).mT, ShapeError);
  });
});
