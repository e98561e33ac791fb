/**
 * Strategies that parallel training needs are listed, and wrong ones that PyTorch once listed are
 * not. every-rule.test.ts tests that the listed strategies are right.
 */
import assert from 'node:assert/strict';
import { type AnyOp, allOps, opByName } from '../../../lib/core/op.js';
import { wrapNumber } from '../../../lib/core/tensor.js';
import { bfloat16, bool, float32, float64, int32, int64, type Tensor } from '../../../lib/index.js';
import { sampleTensor } from '../../../lib/ops/samples.js';
import { contextOf, strategiesOf } from './check-strategies.js';

/** `S0 R -> P(sum)` for the inputs and outputs of a strategy. */
function strategyTexts(
  name: string,
  inputs: readonly Tensor[],
  params: object,
  ranks = 2,
): string[] {
  const short = (places: readonly object[]): string =>
    places
      .map((p) =>
        String(p)
          .replace(/Shard\((\d+)\)/, 'S$1')
          .replace('Replicate()', 'R')
          .replace('Partial', 'P'),
      )
      .join(' ');
  return strategiesOf(opByName(name) as AnyOp, inputs, params, contextOf(ranks)).map(
    (s) => `${short(s.inputs)} -> ${short(s.outputs)}`,
  );
}

const x = sampleTensor([4, 6]);
const one = wrapNumber(1, float32, x.device);
const weight = sampleTensor([6, 8]);
const ids = sampleTensor([5], { dtype: int64, low: 0, high: 4 });
const whole = sampleTensor([4, 6], { dtype: int64 });
const heads = sampleTensor([2, 4, 5, 3]);
const groups = sampleTensor([2, 2, 5, 3]);
const attends = { scale: 1, causal: 1, dropout: 0, seedLow: 0, seedHigh: 0, offset: 0 };
const step = { dims: [1], keepdim: false };

const there: [what: string, name: string, inputs: Tensor[], params: object, strategy: string][] = [
  ['a product by rows', 'matmul', [x, weight, one], { alpha: 1, beta: 0 }, 'S0 R R -> S0'],
  [
    'a product by columns, with a bias sharded alike',
    'matmul',
    [x, weight, sampleTensor([8])],
    { alpha: 1, beta: 1 },
    'R S1 S0 -> S1',
  ],
  ['partial products', 'matmul', [x, weight, one], { alpha: 1, beta: 0 }, 'S1 S0 R -> P(sum)'],
  [
    'partial products with a replicated bias',
    'matmul',
    [x, weight, sampleTensor([8])],
    { alpha: 1, beta: 1 },
    'S1 S0 R -> P(sum)',
  ],
  [
    'a product of a Partial factor',
    'matmul',
    [x, weight, one],
    { alpha: 1, beta: 0 },
    'P(sum) R R -> P(sum)',
  ],
  ['an embedding table sharded by rows', 'indexSelect', [x, ids], { dim: 0 }, 'S0 R -> P(sum)'],
  ['an embedding table sharded by columns', 'indexSelect', [x, ids], { dim: 0 }, 'S1 R -> S1'],
  ['tokens cut', 'indexSelect', [x, ids], { dim: 0 }, 'R S0 -> S0'],
  [
    'the gradient of a table from sharded tokens',
    'indexAdd',
    [x, ids, sampleTensor([5, 6])],
    { dim: 0, alpha: 1 },
    'R S0 S0 -> P(sum)',
  ],
  [
    'the gradient of a table sharded by rows',
    'indexAdd',
    [x, ids, sampleTensor([5, 6])],
    { dim: 0, alpha: 1 },
    'S0 R R -> S0',
  ],
  [
    'layerNorm of a sharded sequence',
    'layerNorm',
    [sampleTensor([2, 4, 3]), one, one],
    { width: 3, eps: 1e-5 },
    'S1 R R -> S1 S1 S1',
  ],
  ['attention by heads', 'attention', [heads, heads, heads, one], attends, 'S1 S1 S1 R -> S1 S1'],
  [
    'attention by groups of heads',
    'attention',
    [heads, groups, groups, one],
    attends,
    'S1 S1 S1 R -> S1 S1',
  ],
  ['a mean of equal pieces', 'mean', [x], step, 'S1 -> P(avg)'],
  ['a flattened dim, cut at its first', 'view', [sampleTensor([4, 3])], { size: [12] }, 'S0 -> S0'],
  ['a dim split into heads', 'view', [sampleTensor([5, 8])], { size: [5, 4, 2] }, 'S1 -> S1'],
  ['a view of a Partial tensor', 'view', [x], { size: [24] }, 'P(sum) -> P(sum)'],
  ['a Partial tensor times a number', 'mul', [x, one], {}, 'P(sum) R -> P(sum)'],
  ['the sum of Partial tensors', 'add', [x, x], { alpha: 1 }, 'P(sum) P(sum) -> P(sum)'],
  ['the gradient of an activation', 'geluBackward', [x, x], {}, 'P(sum) R -> P(sum)'],
  ['a Partial tensor in a wider dtype', 'copy', [x], { dtype: float64 }, 'P(sum) -> P(sum)'],
  [
    'losses of rows',
    'crossEntropyRows',
    [x, sampleTensor([4], { dtype: int64, low: 0, high: 6 }), one],
    {},
    'S0 S0 R -> S0 S0',
  ],
  [
    'shards of the classes of a loss',
    'crossEntropyStatistics',
    [x, sampleTensor([4], { dtype: int64, low: 0, high: 6 }), one],
    { shards: 2 },
    'S1 R R -> S1 P(sum)',
  ],
  [
    'the gradient of a loss by classes',
    'crossEntropyBackward',
    [sampleTensor([4]), x, sampleTensor([4]), sampleTensor([4], { dtype: int64 }), one],
    {},
    'R S1 R R R -> S1',
  ],
  ['random numbers', 'randomNormal', [], { shape: [4, 2] }, ' -> S1'],
];

const absent: [what: string, name: string, inputs: Tensor[], params: object, strategy: RegExp][] = [
  ['a number added to a Partial tensor', 'add', [x, one], { alpha: 1 }, /P/],
  ['a Partial tensor subtracted from a number', 'sub', [one, x], { alpha: 1 }, /P/],
  ['a Partial divisor', 'div', [x, x], {}, /^\S+ P/],
  ['two Partial factors', 'mul', [x, x], {}, /P\S+ P/],
  ['a Partial tensor in a narrower dtype', 'copy', [x], { dtype: bfloat16 }, /P/],
  ['a Partial tensor truncated to integers', 'copy', [x], { dtype: int32 }, /P/],
  ['a Partial tensor as bools', 'copy', [x], { dtype: bool }, /P/],
  ['partial integers that overflow earlier', 'copy', [whole], { dtype: int32 }, /P/],
  ['an activation of a Partial tensor', 'relu', [x], {}, /P/],
  ['a mean of unequal pieces as a mean', 'mean', [sampleTensor([4, 5])], step, /^S1 -> P\(avg\)/],
  ['a flattened dim, cut behind its first', 'view', [sampleTensor([4, 3])], { size: [12] }, /^S1/],
  ['unequal pieces of a flattened dim', 'view', [sampleTensor([5, 3])], { size: [15] }, /^S0/],
  ['a part of a dim that is cut', 'slice', [x], { dim: 0, start: 1, length: 2, step: 1 }, /^S0/],
  ['a softmax over a dim that is cut', 'softmax', [x], { dim: 1 }, /^S1/],
  ['a variance over a dim that is cut', 'varMean', [x], { ...step, correction: 1 }, /^S1/],
  ['queries cut under a causal mask', 'attention', [heads, heads, heads, one], attends, /^S2/],
  [
    'attention with dropout',
    'attention',
    [heads, heads, heads, one],
    { ...attends, dropout: 0.5 },
    /./,
  ],
  ['groups of heads torn apart', 'attention', [heads, groups, groups, one], attends, /^S1 R/],
];

describe('the sharding rules of the op table', () => {
  for (const [what, name, inputs, params, strategy] of there) {
    it(`list ${what}`, () =>
      assert.ok(
        strategyTexts(name, inputs, params).includes(strategy),
        `${strategy} is none of\n${strategyTexts(name, inputs, params).join('\n')}`,
      ));
  }

  for (const [what, name, inputs, params, strategy] of absent) {
    it(`do not list ${what}`, () =>
      assert.deepEqual(
        strategyTexts(name, inputs, params).filter((listed) => strategy.test(listed)),
        [],
      ));
  }

  it('let ops decompose that a rank cannot compute from its shards alone', () => {
    for (const name of [
      'softmax',
      'logSoftmax',
      'logsumexp',
      'varMean',
      'vectorNorm',
      'layerNorm',
      'rmsNorm',
      'crossEntropyRows',
      'foreachNorm',
    ]) {
      const op = opByName(name) as AnyOp;
      assert.ok(op.sharding?.decomposes && op.decompose !== null, name);
    }
  });

  it('allow decomposition only for ops that have one', () => {
    const without = allOps().filter((op) => op.sharding?.decomposes && op.decompose === null);
    assert.deepEqual(without, []);
  });
});
