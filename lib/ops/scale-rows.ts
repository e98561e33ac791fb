/**
 * Rows times a number each, which costs next to nothing where the numbers are 1 and the rows may be
 * overwritten.
 */
import { defineOp, type Op } from '../core/op.js';
import type { Tensor } from '../core/tensor.js';
import { sampleTensor } from './samples.js';
import { scaleRowsRule } from './sharding/cross-entropy.js';

/** Inputs: rows `[n, m]`, factors `[n]`. @internal */
export const scaleRows: Op<object> = defineOp<object>({
  name: 'scaleRows',
  doc: 'Each row times its factor, in the dtype of the rows. In place, rows whose factor is 1 are neither read nor written.',
  sharding: scaleRowsRule,
  updates: 0,
  meta: ([x]) => {
    const { shape, dtype, device } = x as Tensor;
    return [{ shape, strides: null, dtype, device }];
  },
  vjp: 'not-differentiable',
  decompose: ([x, factors]) => [
    (x as Tensor).mul((factors as Tensor).unsqueeze(1)).to((x as Tensor).dtype),
  ],
  samples: () => [{ inputs: [sampleTensor([4, 5]), sampleTensor([4], { seed: 2 })], params: {} }],
});
