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
  'a weight of other classes': [
    'crossEntropy',
    () => functional.crossEntropy(matrix, long(2), { weight: ones([5]) }),
  ],
  'a weight of other classes for log probabilities': [
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
  'a target of pairs that does not fit': [
    'cosineEmbeddingLoss',
    () => functional.cosineEmbeddingLoss(matrix, matrix, ones([5])),
  ],
  'a target of a ranking that does not fit': [
    'marginRankingLoss',
    () => functional.marginRankingLoss(vector, vector, ones([5])),
  ],
  'a negative that does not fit': [
    'tripletMarginLoss',
    () => functional.tripletMarginLoss(matrix, matrix, other),
  ],
  'inner sizes of mm': ['mm', () => matrix.mm(matrix)],
  'dtypes of mm': ['mm', () => matrix.mm(ones([3, 2]).double())],
  'inner sizes of bmm': ['bmm', () => batch.bmm(batch)],
  'dtypes of mv': ['mv', () => matrix.mv(long(3))],
  'sizes of dot': ['dot', () => vector.dot(ones([4]))],
  'dtypes of dot': ['dot', () => vector.dot(long(3))],
  'vectors of different sizes in matmul': ['matmul', () => vector.matmul(ones([4]))],
  'dtypes of linear': ['linear', () => functional.linear(matrix, ones([2, 3]).double())],
  'a weight of linear without dims': ['linear', () => functional.linear(vector, scalarTensor(1))],
  'a vector as weight of another size': ['linear', () => functional.linear(matrix, ones([7]))],
  'a bias of linear that does not fit': [
    'linear',
    () => functional.linear(matrix, vector, ones([5])),
  ],
  'a vector of addmv': ['addmv', () => ones([2]).addmv(matrix, ones([4]))],
  'an input of addmv': ['addmv', () => ones([5]).addmv(matrix, vector)],
  'vectors of addr': ['addr', () => matrix.addr(matrix, vector)],
  'an input of addr': ['addr', () => matrix.addr(ones([4]), ones([5]))],
  'batches of addbmm': ['addbmm', () => matrix.addbmm(matrix, matrix)],
  'last sizes of inner': ['inner', () => vector.inner(other)],
  'dtypes of tensordot': ['tensordot', () => shardwise.tensordot(vector, long(3), 1)],
  'sizes of bilinear': ['bilinear', () => functional.bilinear(matrix, matrix, batch)],
  'dtypes of bilinear': [
    'bilinear',
    () => functional.bilinear(ones([2, 3]), ones([2, 4]), batch.double()),
  ],
  'a dim of normalize': ['normalize', () => functional.normalize(scalarTensor(1))],
  'integers in cdist': ['cdist', () => shardwise.cdist(long(2, 3), long(2, 3))],
  'integers in groupNorm': ['groupNorm', () => functional.groupNorm(long(2, 3), 1)],
  'a weight of groupNorm': ['groupNorm', () => functional.groupNorm(matrix, 1, ones([7]))],
  'running statistics of other channels': [
    'batchNorm',
    () => functional.batchNorm(matrix, ones([7]), ones([7])),
  ],
  'an index of a table without rows': [
    'embedding',
    () => functional.embedding(long(2), zeros([0, 3])),
  ],
  'a class of none': ['oneHot', () => functional.oneHot(long(2), 0)],
  'classes that are no number': ['oneHot', () => functional.oneHot(long(2), 1.5)],
  'a source of scatterAdd': ['scatterAdd', () => vector.scatterAdd(0, long(3), matrix)],
  'a source of scatterReduce': [
    'scatterReduce',
    () => vector.scatterReduce(0, long(3), matrix, 'sum'),
  ],
  'a source of indexCopy': ['indexCopy', () => vector.indexCopy(0, long(3), matrix)],
  'several values for indexFill': ['indexFill', () => vector.indexFill(0, long(1), ones([3]))],
  'a value of maskedFill that does not fit': [
    'maskedFill',
    () => matrix.maskedFill(mask(2, 3), other),
  ],
  'a mask of maskedFill that does not fit': ['maskedFill', () => matrix.maskedFill(mask(7), 1)],
  'a mask of maskedScatter that does not fit': [
    'maskedScatter',
    () => vector.maskedScatter(mask(2, 5), vector),
  ],
  'a mask of floats': ['maskedSelect', () => matrix.maskedSelect(matrix)],
  'an element of nothing': ['take', () => zeros([0]).take(long(1))],
  'indices that are floats': ['takeAlongDim', () => matrix.takeAlongDim(matrix, 0)],
  'indices of other dims': ['takeAlongDim', () => matrix.takeAlongDim(long(3), 0)],
  'two dims that are one': ['diagEmbed', () => vector.diagEmbed(0, 0, 0)],
  'columns of a vector': ['fliplr', () => vector.fliplr()],
  'a shape to stretch to': ['expandAs', () => vector.expandAs(scalarTensor(1))],
  'a shape of other elements': ['viewAs', () => vector.viewAs(matrix)],
  'a shape of more elements': ['reshapeAs', () => vector.reshapeAs(matrix)],
  'a dim of roll': ['roll', () => vector.roll(1, 1)],
  'counts of repeatInterleave': [
    'repeatInterleave',
    () => vector.repeatInterleave(ones([2]).long()),
  ],
  'a grid of matrices': ['cartesianProd', () => shardwise.cartesianProd(vector, matrix)],
  'the extremes of nothing': ['aminmax', () => zeros([0]).aminmax()],
  'the largest of nothing': ['max', () => zeros([0]).max()],
  'a dim of max': ['max', () => vector.max(1)],
  'a dim of median': ['median', () => vector.median(1)],
  'a dim of std': ['std', () => vector.std(1)],
  'a dim of stdMean': ['stdMean', () => shardwise.stdMean(vector, 1)],
  'a dim of nanmean': ['nanmean', () => vector.nanmean(1)],
  'a dim of diff': ['diff', () => vector.diff(1, 1)],
  'a dim of argsort': ['argsort', () => vector.argsort(1)],
  'weights of bincount': ['bincount', () => arange(3).bincount(ones([2]))],
  'a sequence without dims': ['searchsorted', () => shardwise.searchsorted(scalarTensor(1), 1)],
  'boundaries that are no vector': ['bucketize', () => shardwise.bucketize(vector, matrix)],
  'a range of integers': ['randintLike', () => shardwise.randintLike(vector, 3, 3)],
  'an odd size': ['glu', () => functional.glu(vector)],
};

describe('the errors of functions of other ops', () => {
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
