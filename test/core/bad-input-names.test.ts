/**
 * Functions that are written in other ops name themselves in errors about bad shapes and dtypes,
 * and not the ops inside.
 */
import assert from 'node:assert/strict';
import * as shardwise from '../../lib/index.js';
import {
  arange,
  nn,
  ones,
  rand,
  ShardwiseError,
  scalarTensor,
  type Tensor,
  zeros,
} from '../../lib/index.js';

const { functional } = nn;
const long = (...shape: number[]): Tensor => zeros(shape).long();
const mask = (...shape: number[]): Tensor => zeros(shape).bool();
const [vector, matrix, other, batch] = [ones([3]), ones([2, 3]), ones([4, 5]), ones([2, 3, 4])];

/** Pairs of operands that do not broadcast. */
const pairs = [
  'allclose',
  'cosineSimilarity',
  'cross',
  'dist',
  'fmax',
  'fmin',
  'heaviside',
  'hypot',
  'isclose',
  'logaddexp',
  'logaddexp2',
  'max',
  'min',
  'pairwiseDistance',
  'rsub',
  'xlogy',
] as const;
const losses = [
  'binaryCrossEntropy',
  'binaryCrossEntropyWithLogits',
  'huberLoss',
  'klDiv',
  'l1Loss',
  'mseLoss',
  'smoothL1Loss',
] as const;
/** Functions of numbers, given a bool tensor. */
const numeric = ['frac', 'logsigmoid', 'softshrink'] as const;

type Pairwise = (a: Tensor, b: Tensor) => unknown;
const named = shardwise as unknown as Record<string, Pairwise & ((a: Tensor) => unknown)>;
const called = (name: string): Pairwise & ((a: Tensor) => unknown) =>
  named[name] as Pairwise & ((a: Tensor) => unknown);

const cases: Record<string, [op: string, run: () => unknown]> = {
  ...Object.fromEntries(
    pairs.map((op) => [
      `shapes that do not broadcast in ${op}`,
      [op, () => called(op)(matrix, other)],
    ]),
  ),
  ...Object.fromEntries(
    losses.map((op) => [
      `a target of another shape in ${op}`,
      [op, () => called(op)(matrix, other)],
    ]),
  ),
  ...Object.fromEntries(
    losses.map((op) => [`bool tensors in ${op}`, [op, () => called(op)(mask(2), mask(2))]]),
  ),
  ...Object.fromEntries(
    numeric.map((op) => [`a bool tensor in ${op}`, [op, () => called(op)(mask(2))]]),
  ),
  'a mean of integer losses': ['mseLoss', () => functional.mseLoss(long(2), long(2))],
  'a weight for another number of classes': [
    'crossEntropy',
    () => functional.crossEntropy(matrix, long(2), { weight: ones([5]) }),
  ],
  'a weight for another number of classes of log probabilities': [
    'nllLoss',
    () => functional.nllLoss(matrix, long(2), { weight: ones([5]) }),
  ],
  'logits without dims': [
    'crossEntropy',
    () => functional.crossEntropy(scalarTensor(1), scalarTensor(1)),
  ],
  'a weight that does not fit a loss': [
    'binaryCrossEntropyWithLogits',
    () => functional.binaryCrossEntropyWithLogits(matrix, matrix, { weight: ones([7]) }),
  ],
  'a target that does not fit its pairs': [
    'cosineEmbeddingLoss',
    () => functional.cosineEmbeddingLoss(matrix, matrix, ones([5])),
  ],
  'a target that does not fit its ranking': [
    'marginRankingLoss',
    () => functional.marginRankingLoss(vector, vector, ones([5])),
  ],
  'a negative of another shape': [
    'tripletMarginLoss',
    () => functional.tripletMarginLoss(matrix, matrix, other),
  ],
  'different inner sizes of matrices': ['mm', () => matrix.mm(matrix)],
  'different dtypes of matrices': ['mm', () => matrix.mm(ones([3, 2]).double())],
  'different inner sizes of batches': ['bmm', () => batch.bmm(batch)],
  'different dtypes of a matrix and a vector': ['mv', () => matrix.mv(long(3))],
  'different sizes of vectors': ['dot', () => vector.dot(ones([4]))],
  'different dtypes of vectors': ['dot', () => vector.dot(long(3))],
  'two vectors of different sizes': ['matmul', () => vector.matmul(ones([4]))],
  'a weight of another dtype': ['linear', () => functional.linear(matrix, ones([2, 3]).double())],
  'a weight without dims': ['linear', () => functional.linear(vector, scalarTensor(1))],
  'a weight vector of another size': ['linear', () => functional.linear(matrix, ones([7]))],
  'a bias that does not fit': ['linear', () => functional.linear(matrix, vector, ones([5]))],
  'a vector that does not fit the matrix': ['addmv', () => ones([2]).addmv(matrix, ones([4]))],
  'an input that does not fit the product with a vector': [
    'addmv',
    () => ones([5]).addmv(matrix, vector),
  ],
  'a matrix in place of a vector': ['addr', () => matrix.addr(matrix, vector)],
  'an input that does not fit the outer product': ['addr', () => matrix.addr(ones([4]), ones([5]))],
  'matrices in place of batches': ['addbmm', () => matrix.addbmm(matrix, matrix)],
  'different last sizes': ['inner', () => vector.inner(other)],
  'different dtypes of its operands': ['tensordot', () => shardwise.tensordot(vector, long(3), 1)],
  'inputs that do not fit the weight': [
    'bilinear',
    () => functional.bilinear(matrix, matrix, batch),
  ],
  'an input of another dtype than the weight': [
    'bilinear',
    () => functional.bilinear(ones([2, 3]), ones([2, 4]), batch.double()),
  ],
  'a dim of a tensor without dims': ['normalize', () => functional.normalize(scalarTensor(1))],
  'points of integers': ['cdist', () => shardwise.cdist(long(2, 3), long(2, 3))],
  'an input of integers': ['groupNorm', () => functional.groupNorm(long(2, 3), 1)],
  'a weight for other channels': ['groupNorm', () => functional.groupNorm(matrix, 1, ones([7]))],
  'running statistics of other channels': [
    'batchNorm',
    () => functional.batchNorm(matrix, ones([7]), ones([7])),
  ],
  'an index of a table without rows': [
    'embedding',
    () => functional.embedding(long(2), zeros([0, 3])),
  ],
  'zero classes': ['oneHot', () => functional.oneHot(long(2), 0)],
  'a fractional number of classes': ['oneHot', () => functional.oneHot(long(2), 1.5)],
  'a source to add that does not fit': ['scatterAdd', () => vector.scatterAdd(0, long(3), matrix)],
  'a source to combine that does not fit': [
    'scatterReduce',
    () => vector.scatterReduce(0, long(3), matrix, 'sum'),
  ],
  'a source to copy that does not fit': ['indexCopy', () => vector.indexCopy(0, long(3), matrix)],
  'several values to fill with': ['indexFill', () => vector.indexFill(0, long(1), ones([3]))],
  'a value to fill with that does not fit': [
    'maskedFill',
    () => matrix.maskedFill(mask(2, 3), other),
  ],
  'a mask to fill by that does not fit': ['maskedFill', () => matrix.maskedFill(mask(7), 1)],
  'a mask to scatter by that does not fit': [
    'maskedScatter',
    () => vector.maskedScatter(mask(2, 5), vector),
  ],
  'a mask of floats': ['maskedSelect', () => matrix.maskedSelect(matrix)],
  'an index into an empty tensor': ['take', () => zeros([0]).take(long(1))],
  'indices that are floats': ['takeAlongDim', () => matrix.takeAlongDim(matrix, 0)],
  'indices of other dims': ['takeAlongDim', () => matrix.takeAlongDim(long(3), 0)],
  'two equal dims': ['diagEmbed', () => vector.diagEmbed(0, 0, 0)],
  'a vector without columns': ['fliplr', () => vector.fliplr()],
  'a shape that the input does not expand to': ['expandAs', () => vector.expandAs(scalarTensor(1))],
  'a shape with another number of elements': ['viewAs', () => vector.viewAs(matrix)],
  'a shape with more elements': ['reshapeAs', () => vector.reshapeAs(matrix)],
  'a dim to roll that is out of range': ['roll', () => vector.roll(1, 1)],
  'counts that do not fit': ['repeatInterleave', () => vector.repeatInterleave(ones([2]).long())],
  'a grid of matrices': ['cartesianProd', () => shardwise.cartesianProd(vector, matrix)],
  'the extremes of an empty tensor': ['aminmax', () => zeros([0]).aminmax()],
  'the largest element of an empty tensor': ['max', () => zeros([0]).max()],
  'a dim of maxima that is out of range': ['max', () => vector.max(1)],
  'a dim of medians that is out of range': ['median', () => vector.median(1)],
  'a dim of deviations that is out of range': ['std', () => vector.std(1)],
  'a dim of deviations and means that is out of range': [
    'stdMean',
    () => shardwise.stdMean(vector, 1),
  ],
  'a dim of means that is out of range': ['nanmean', () => vector.nanmean(1)],
  'a dim of differences that is out of range': ['diff', () => vector.diff(1, 1)],
  'a dim to sort that is out of range': ['argsort', () => vector.argsort(1)],
  'weights that do not fit the counted values': ['bincount', () => arange(3).bincount(ones([2]))],
  'a sequence without dims': ['searchsorted', () => shardwise.searchsorted(scalarTensor(1), 1)],
  'boundaries that are not a vector': ['bucketize', () => shardwise.bucketize(vector, matrix)],
  'an empty range of integers': ['randintLike', () => shardwise.randintLike(vector, 3, 3)],
  'an odd size': ['glu', () => functional.glu(vector)],
};

describe('the errors of composite functions', () => {
  for (const [what, [op, run]] of Object.entries(cases)) {
    it(`name ${op} for ${what}`, () => {
      assert.throws(run, (error: unknown) => {
        assert.ok(error instanceof ShardwiseError, String(error));
        assert.ok(error.message.startsWith(`${op}: `), error.message);
        assert.equal(error.details['op'], op);
        return true;
      });
    });
  }

  it('are not thrown for empty tensors and single values', () => {
    assert.deepEqual(functional.glu(zeros([0, 3]), 0).shape, [0, 3]);
    assert.deepEqual(
      scalarTensor(2)
        .repeatInterleave(ones([1]).long().mul(3), 0)
        .tolist(),
      [2, 2, 2],
    );
    assert.equal(scalarTensor(2).roll(1, 0).item(), 2);
    assert.deepEqual(functional.embedding(long(0), zeros([0, 3])).shape, [0, 3]);
    assert.deepEqual(functional.linear(rand([4, 3]), ones([3]), ones([4])).shape, [4]);
  });
});
