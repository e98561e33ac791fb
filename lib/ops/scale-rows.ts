/**
 * Rows times a number each, which costs next to nothing where the numbers are 1 and the rows may be
 * overwritten.
 */
import { defineOp, type Op } from '../core/op.js';
import { sampleTensor } from './samples.js';
import { scaleRowsRule } from './sharding/cross-entropy.js';

/** Inputs: rows `[n, m]`, factors `[n]`. @internal */
export const scaleRows: Op<object> = defineOp({
  name: 'scaleRows',
  doc: 'Each row times its factor, in the dtype of the rows. In place, rows whose factor is 1 are neither read nor written.',
  sharding: scaleRowsRule,
  inputs: ['rows', 'factors'],
  outputs: ['y'],
  operands: '(factors: float [r]) -> (y: dense float [r, c])',
  updates: 0,
  meta: ([{ shape, dtype, device }]) => [{ shape, strides: null, dtype, device }],
  vjp: 'not-differentiable',
  decompose: ([rows, factors]) => [rows.mul(factors.unsqueeze(1)).to(rows.dtype)],
  samples: () => [{ inputs: [sampleTensor([4, 5]), sampleTensor([4], { seed: 2 })], params: {} }],
});
