/**
 * That the comparison of the other suites of this folder can fail: it notices strategies that are
 * wrong.
 */
import assert from 'node:assert/strict';
import { dispatch } from '../../../lib/core/dispatch.js';
import { type AnyOp, opByName } from '../../../lib/core/op.js';
import {
  Partial,
  type Placement,
  type ReduceOpName,
  Replicate,
  Shard,
} from '../../../lib/core/placement.js';
import '../../../lib/index.js';
import { sampleTensor } from '../../../lib/ops/samples.js';
import { checkStrategies } from './check-strategies.js';

type Place = number | null | ReduceOpName;
const placed = (place: Place): Placement =>
  place === null ? Replicate() : typeof place === 'number' ? Shard(place) : Partial(place);

const reduced = { dims: [0], keepdim: false };
const wrong: [
  why: string,
  name: string,
  shapes: number[][],
  params: object,
  inputs: Place[],
  outputs: Place[],
][] = [
  ['the square of a sum as a sum of squares', 'square', [[5]], {}, ['sum'], ['sum']],
  ['a number added by every rank', 'add', [[5], [5]], { alpha: 1 }, ['sum', null], ['sum']],
  [
    'the larger of two sums as a sum of the larger terms',
    'maximum',
    [[5], [5]],
    {},
    ['sum', 'sum'],
    ['sum'],
  ],
  ['a product of sums as a sum of products', 'mul', [[5], [5]], {}, ['sum', 'sum'], ['sum']],
  ['the mean of unequal pieces as the mean of their means', 'mean', [[5]], reduced, [0], ['avg']],
  ['a product as a sum', 'prod', [[5]], reduced, ['sum'], ['sum']],
  ['the largest piece of another dim', 'sum', [[5, 3]], reduced, [1], ['sum']],
  ['a softmax of each piece', 'softmax', [[3, 4]], { dim: 1 }, [1], [1]],
  ['running sums of each piece', 'cumsum', [[5]], { dim: 0 }, [0], [0]],
  ['unequal pieces seen as one dim', 'view', [[5, 3]], { size: [15] }, [0], [0]],
  ['the smallest as the largest', 'relu', [[5]], {}, ['min'], ['max']],
  ['copies of what is cut', 'relu', [[5]], {}, [0], [null]],
  ['pieces of what is a copy', 'relu', [[5]], {}, [null], [0]],
];

describe('strategies checked by hand', () => {
  for (const [why, name, shapes, params, inputs, outputs] of wrong) {
    it(`are refused when wrong: ${why}`, () => {
      const op = opByName(name) as AnyOp;
      const operands = shapes.map((shape, i) => sampleTensor(shape, { seed: i + 1 }));
      const call = { op, inputs: operands, params, expected: dispatch(op, operands, params) };
      assert.throws(() =>
        checkStrategies(call, [{ inputs: inputs.map(placed), outputs: outputs.map(placed) }], [2]),
      );
    });
  }
});
