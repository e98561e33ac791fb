/**
 * checkStrategies, which other tests of this folder rely on, refuses wrong strategies.
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
    'the maximum of two sums as a sum of maxima',
    'maximum',
    [[5], [5]],
    {},
    ['sum', 'sum'],
    ['sum'],
  ],
  ['a product of sums as a sum of products', 'mul', [[5], [5]], {}, ['sum', 'sum'], ['sum']],
  ['the mean over unequal shards as the mean of their means', 'mean', [[5]], reduced, [0], ['avg']],
  ['a product as a sum', 'prod', [[5]], reduced, ['sum'], ['sum']],
  ['the sum of another dim', 'sum', [[5, 3]], reduced, [1], ['sum']],
  ['a softmax of each shard', 'softmax', [[3, 4]], { dim: 1 }, [1], [1]],
  ['a cumsum of each shard', 'cumsum', [[5]], { dim: 0 }, [0], [0]],
  ['unequal shards viewed as one dim', 'view', [[5, 3]], { size: [15] }, [0], [0]],
  ['a minimum as a maximum', 'relu', [[5]], {}, ['min'], ['max']],
  ['a sharded input with a replicated result', 'relu', [[5]], {}, [0], [null]],
  ['a replicated input with a sharded result', 'relu', [[5]], {}, [null], [0]],
];

describe('checkStrategies', () => {
  for (const [why, name, shapes, params, inputs, outputs] of wrong) {
    it(`refuses a wrong strategy: ${why}`, () => {
      const op = opByName(name) as AnyOp;
      const operands = shapes.map((shape, i) => sampleTensor(shape, { seed: i + 1 }));
      const call = { op, inputs: operands, params, expected: dispatch(op, operands, params) };
      assert.throws(() =>
        checkStrategies(call, [{ inputs: inputs.map(placed), outputs: outputs.map(placed) }], [2]),
      );
    });
  }
});
