/** Factory ops: full, empty, arange, linspace. test/golden compares their values with PyTorch. */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  arange,
  bool,
  empty,
  emptyLike,
  float64,
  full,
  fullLike,
  int32,
  int64,
  linspace,
  manualSeed,
  ones,
  onesLike,
  randintLike,
  randLike,
  randnLike,
  type Tensor,
  uint8,
  zerosLike,
} from '../../lib/index.js';

describe('a factory op', () => {
  it('fills with one value: full', () => {
    assert.deepEqual(full([2, 2], 1.5).tolist(), [
      [1.5, 1.5],
      [1.5, 1.5],
    ]);
    assert.deepEqual((full([2], 2 ** 53 - 1, { dtype: int64 }).tolist() as unknown[]).map(Number), [
      2 ** 53 - 1,
      2 ** 53 - 1,
    ]);
    assert.deepEqual(full([1], 0.5, { dtype: bool }).tolist(), [true]);
    assert.deepEqual(full([1], 7.9, { dtype: uint8 }).tolist(), [7]);
    assert.deepEqual(full([0, 3], 1).shape, [0, 3]);
  });

  const likes = {
    emptyLike: (t: Tensor) => emptyLike(t),
    zerosLike: (t: Tensor) => zerosLike(t),
    onesLike: (t: Tensor) => onesLike(t, { dtype: int64 }),
    fullLike: (t: Tensor) => fullLike(t, 3),
    randLike: (t: Tensor) => randLike(t),
    randnLike: (t: Tensor) => randnLike(t),
    randintLike: (t: Tensor) => randintLike(t, 0, 9),
  };
  // Shapes, strides, and the strides that torch.empty_like gives.
  const layouts: readonly (readonly [shape: number[], strides: number[], like: number[]])[] = [
    [
      [3, 2],
      [1, 3],
      [1, 3],
    ],
    [
      [2, 3, 4],
      [1, 8, 2],
      [1, 8, 2],
    ],
    [
      [2, 3, 4, 5],
      [60, 1, 15, 3],
      [60, 1, 15, 3],
    ], // channels last
    [
      [2, 1, 3],
      [3, 7, 1],
      [3, 7, 1],
    ],
    [
      [3, 4],
      [8, 2],
      [4, 1],
    ],
    [
      [4, 3],
      [2, 8],
      [1, 4],
    ],
    [
      [2, 3, 4],
      [2, 32, 8],
      [1, 8, 2],
    ],
    [
      [2, 2],
      [0, 1],
      [2, 1],
    ],
    [
      [2, 3],
      [1, 0],
      [3, 1],
    ],
    [
      [2, 3, 2],
      [4, 0, 12],
      [1, 2, 6],
    ],
    [
      [3, 2],
      [1, 1],
      [2, 1],
    ],
    [
      [2, 0, 3],
      [9, 2, 5],
      [9, 2, 5],
    ],
    [[3], [0], [1]],
  ];
  for (const [name, like] of Object.entries(likes))
    it(`has the layout of another tensor, without its gaps and overlaps: ${name}`, () => {
      for (const [shape, strides, expected] of layouts) {
        const t = like(ones([200]).asStrided(shape, strides, 3));
        assert.deepEqual([t.shape, t.strides, t.storageOffset], [shape, expected, 0]);
        assert.ok((t.storage?.nbytes ?? 0) <= t.numel() * t.itemsize || t.numel() === 0);
      }
    });

  it('draws the same numbers in any layout: randLike', () => {
    const draw = (t: Tensor): unknown => (manualSeed(3), randLike(t).tolist());
    assert.deepEqual(draw(ones([4, 3]).t()), draw(ones([3, 4])));
  });

  it('reserves memory that can be written: empty', () => {
    const t = empty([2, 3], { dtype: float64 });
    assert.deepEqual([t.shape, t.strides, t.dtype], [[2, 3], [3, 1], float64]);
    assert.deepEqual(t.fill_(2).sum().item(), 12);
    assert.equal(empty([0]).numel(), 0);
  });

  it('counts by steps: arange', () => {
    assert.deepEqual(arange(2, 9, 3, { dtype: float64 }).tolist(), [2, 5, 8]);
    assert.deepEqual(arange(9, 2, -3, { dtype: float64 }).tolist(), [9, 6, 3]);
    const tenths = arange(0, 1, 0.1, { dtype: float64 }).tolist() as number[];
    assert.deepEqual(
      tenths,
      Array.from({ length: 10 }, (_, i) => i * 0.1),
    );
  });

  it('truncates start and step to integers as PyTorch does: arange', () => {
    assert.deepEqual(
      arange(-2.5, 8, 1, { dtype: int64 }).tolist(),
      [-2, -1, 0, 1, 2, 3, 4, 5, 6, 7],
    );
    assert.deepEqual(
      arange(-2.5, 8, 1, { dtype: int32 }).tolist(),
      [-2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8],
    );
    assert.deepEqual(arange(0, 3.9, 1.5, { dtype: int64 }).tolist(), [0, 1, 2]);
    assert.deepEqual(arange(2.7, -2.7, -1, { dtype: int64 }).tolist(), [2, 1, 0, -1]);
    assert.deepEqual(arange(0, 10, 2.5, { dtype: int64 }).tolist(), [0, 2, 4, 6, 8]);
    assert.deepEqual(arange(0, -0.5, 1, { dtype: int64 }).tolist(), []);
  });

  it('refuses a step that leads away from the end: arange', () => {
    for (const [start, end, step] of [
      [1, 0.5, 1],
      [0, -0.5, 1],
      [1, 1.5, -1],
      [1, 2, -1],
    ] as const)
      assert.throws(() => arange(start, end, step), ArgumentError);
    assert.deepEqual(arange(1, 1, -1).shape, [0]);
  });

  it('spaces evenly and includes both ends: linspace', () => {
    const values = linspace(-3, 10, 131, { dtype: float64 }).tolist() as number[];
    assert.deepEqual([values.length, values[0], values[130]], [131, -3, 10]);
    values.forEach((v, i) => {
      assert.ok(Math.abs(v - (-3 + (i * 13) / 130)) < 1e-13, `${i}: ${v}`);
    });
    assert.deepEqual([linspace(3, 4, 1).tolist(), linspace(3, 4, 0).tolist()], [[3], []]);
  });
});
