/** Call forms of factories, views and functions that move elements. */
import assert from 'node:assert/strict';
import {
  arange,
  bfloat16,
  bool,
  einsum,
  empty,
  eye,
  float32,
  float64,
  full,
  int64,
  linspace,
  logspace,
  meshgrid,
  nn,
  ones,
  tensor,
  zeros,
} from '../../lib/index.js';
import { type CallForms, f64, index, itGivesTheSame, x, y } from './call-forms.js';

const _F = nn.functional;

const calls: CallForms = {
  'zeros(2, 3)': [
    '[[0,0,0],[0,0,0]]',
    () => zeros(2, 3),
    () => zeros([2, 3]),
    () => zeros({ size: [2, 3] }),
    () => zeros(2, 3, { dtype: bfloat16 }),
    () => x.newZeros(2, 3),
  ],
  'ones(2)': [
    '[1,1]',
    () => ones(2),
    () => ones([2]),
    () => ones(2, { dtype: int64 }).float(),
    () => x.newOnes(2, { dtype: float32 }),
  ],
  'full((2,), 1)': [
    '[1,1]',
    () => full([2], 1),
    () => full({ size: [2], fillValue: 1 }),
    () => full([2], { fillValue: 1 }),
    () => x.newFull([2], { fillValue: 1 }),
  ],
  'eye(2, 1)': ['[[1],[0]]', () => eye(2, 1), () => eye(2, { m: 1 })],
  'arange(0, 6, step=2)': [
    '[0,2,4]',
    () => arange(0, 6, 2),
    () => arange(0, 6, { step: 2 }),
    () => arange({ end: 6, step: 2 }),
  ],
  'linspace(0, 1, steps=3)': [
    '[0,0.5,1]',
    () => linspace(0, 1, 3),
    () => linspace(0, 1, { steps: 3 }),
  ],
  'logspace(0, 2, 3, 2)': [
    '[1,2,4]',
    () => logspace(0, 2, 3, 2),
    () => logspace(0, 2, 3, { base: 2 }),
  ],
  'tensor([t1, t2])': [
    '[1,2.5]',
    () => tensor([tensor(1), tensor(2.5)]),
    () => tensor([tensor(1n), 2.5]),
  ],
  'einsum(eq, [a, b])': [
    '[[6,12],[9,18]]',
    () => einsum('ij,kj->ik', [x, y]),
    () => einsum('ij,kj->ik', x, y),
  ],
  'meshgrid(a, b)': [
    '[[[1,1],[2,2]],[[3,4],[3,4]]]',
    () => meshgrid(tensor([1, 2]), tensor([3, 4])),
    () => meshgrid([tensor([1, 2]), tensor([3, 4])]),
    () => meshgrid(tensor([1, 2]), tensor([3, 4]), { indexing: 'ij' }),
  ],
  'flip(dims=[1])': [
    '[[2,1,3],[4,5,0]]',
    () => x.flip(1),
    () => x.flip([1]),
    () => x.flip({ dims: [1] }),
  ],
  'permute(1, 0)': [
    '[[3,0],[1,5],[2,4]]',
    () => x.permute(1, 0),
    () => x.permute([1, 0]),
    () => x.permute({ dims: [1, 0] }),
  ],
  'transpose(0, 1)': [
    '[[3,0],[1,5],[2,4]]',
    () => x.transpose(0, 1),
    () => x.transpose({ dim0: 0, dim1: 1 }),
    () => x.swapaxes(0, { dim1: 1 }),
  ],
  'roll(1, dims=1)': [
    '[[2,3,1],[4,0,5]]',
    () => x.roll(1, 1),
    () => x.roll(1, { dims: 1 }),
    () => x.roll({ shifts: 1, dims: 1 }),
  ],
  'gather(dim=1, index=i)': [
    '[[3,1],[4,0]]',
    () => x.gather(1, index),
    () => x.gather({ dim: 1, index }),
  ],
  'scatter(1, i, 9)': [
    '[[9,9,2],[9,5,9]]',
    () => x.scatter(1, index, 9),
    () => x.scatter({ dim: 1, index, src: 9 }),
    () => x.clone().scatter_(1, index, { src: 9 }),
  ],
  'index_add(0, i, s, alpha=2)': [
    '[[5,3,4],[4,9,8]]',
    () => x.indexAdd(0, tensor([0n, 1n]), y, { alpha: 2 }),
    () => x.indexAdd({ dim: 0, index: tensor([0n, 1n]), source: y, alpha: 2 }),
  ],
  'unflatten(1, (3, 1))': [
    '[[[3],[1],[2]],[[0],[5],[4]]]',
    () => x.unflatten(1, [3, 1]),
    () => x.unflatten({ dim: 1, sizes: [3, 1] }),
  ],
  'unsqueeze(dim=0)': [
    '[[1]]',
    () => tensor([1]).unsqueeze(0),
    () => tensor([1]).unsqueeze({ dim: 0 }),
  ],
  'squeeze(dim=0)': [
    '[1]',
    () => tensor([[1]]).squeeze(0),
    () => tensor([[1]]).squeeze({ dim: 0 }),
  ],
  'repeat_interleave(2, dim=1)': [
    '[[1,1]]',
    () => tensor([[1]]).repeatInterleave(2, 1),
    () => tensor([[1]]).repeatInterleave(2, { dim: 1, outputSize: null }),
  ],
};

describe("PyTorch's call form of factories and views", () => {
  itGivesTheSame(calls);

  it('empty(2, 3) takes the sizes as arguments', () => {
    assert.deepEqual(empty(2, 3).shape, [2, 3]);
    assert.deepEqual(empty([]).shape, []);
    assert.equal(empty(2, { dtype: bool }).dtype, bool);
  });

  it('tensor([t1, t2]) has the promoted dtype, and refuses tensors with dims', () => {
    assert.equal(tensor([tensor(1, f64), tensor(2n)]).dtype, float64);
    assert.equal(tensor([tensor(1n), 2n]).dtype, int64);
    assert.equal(tensor([tensor(1n), 2.5]).dtype, float32);
    assert.equal(tensor([[tensor(true)], [tensor(false)]]).dtype, bool);
    assert.throws(
      () => tensor([tensor([1]), tensor([2])]),
      /tensor: among numbers expected tensors without dims, got shape \[1\]; use stack\(\) or cat\(\)/,
    );
  });
});
