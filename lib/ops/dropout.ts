/**
 * Dropout: elements set to 0 at random, the others scaled up.
 */

import { dispatchOne } from '../core/dispatch.js';
import { bool } from '../core/dtype.js';
import { defineOp, type Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { checkFlag, checkProbability } from '../core/options.js';
import { nextDraw } from '../core/random.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { overwrite } from './composite.js';
import { addMethod } from './method.js';
import { requireFloating, requireTensor } from './operand.js';
import { type RandomOptions, writeIndex } from './random.js';
import { sampleTensor } from './samples.js';
import { dropoutRule, type ElementIndex } from './sharding/factories-and-random.js';

const dropoutParams = {
  seedLow: param.random(),
  seedHigh: param.random(),
  offset: param.random(),
  probability: param.kernel(),
  /** As of {@link Draw}. */
  index: param.optional<ElementIndex>(),
};
type Dropout = ParamsOf<typeof dropoutParams>;

const dropoutOp: Op<Dropout> = defineOp({
  name: 'dropout',
  doc: 'Elements set to 0 with a probability, the others scaled up; and which were kept.',
  sharding: dropoutRule<Dropout>(),
  inputs: ['x'],
  outputs: ['y', 'kept'],
  operands: '(x: [...s], positions: indexView [...s]) -> (y: [...s], mask: bool [...s])',
  params: dropoutParams,
  meta: ([{ sizes: shape, dtype, device }]) => [
    { shape, strides: null, dtype, device },
    { shape, strides: null, dtype: bool, device },
  ],
  lower: (command, [x], [y, kept], { index }) => {
    command.tensor(x);
    writeIndex(command, x.sizes, index);
    command.output(y);
    command.output(kept);
  },
  saves: { outputs: [1] },
  vjp: (ctx, g) => [g.mul(ctx.output(1)).mul(1 / (1 - ctx.params.probability))],
  samples: () => [
    {
      inputs: [sampleTensor([3, 4])],
      params: { probability: 0.4, seedLow: 1, seedHigh: 0, offset: 0 },
    },
  ],
});

/**
 * With `training` (true), sets elements to 0 with probability `p` (0.5) and scales the others by 1
 * / (1 - p); else, or for p = 0, returns the input itself. With `inplace` the result is written
 * into the input.
 *
 * Shape and dtype stay; floating dtypes. Gradient: yes, the same mask and scale.
 *
 * @throws ArgumentError unless 0 <= p <= 1, or for a value that is not a tensor; DtypeError for
 * integers, which cannot be scaled by 1 / (1 - p)
 * @see PyTorch `torch.nn.functional.dropout`; Srivastava et al., JMLR 15 (2014)
 */
export const dropout = defineFunction(
  'dropout(input, /, p, training, inplace, *, generator)',
  (
    input: Tensor,
    p = 0.5,
    training = true,
    inplace = false,
    { generator }: Pick<RandomOptions, 'generator'> = {},
  ): Tensor => {
    requireTensor(input, 'dropout');
    checkProbability('dropout', 'p', p);
    checkFlag('dropout', 'inplace', inplace);
    if (!training || p === 0) return input;
    if (inplace) return overwrite('dropout_', input, (t) => dropout(t, p, true, { generator }));
    requireFloating(input, 'dropout');
    if (p === 1) return input.mul(0);
    return dispatchOne(dropoutOp, [input], { probability: p, ...nextDraw(generator, input) });
  },
);
addMethod('dropout', methodOf(dropout));

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * Elements set to 0 with probability p, others scaled by 1 / (1 - p); the same as {@link
     * dropout}.
     */
    dropout: MethodOf<typeof dropout>;
  }
}
