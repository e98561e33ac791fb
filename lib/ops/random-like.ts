/**
 * Random tensors with the shape, dtype and device of another tensor: randLike, randnLike,
 * randintLike.
 */

import type { DType } from '../core/dtype.js';
import { optionsOf } from '../core/options.js';
import { defineFunction } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { emptyBeside } from './factories.js';
import { requireDtype, requireTensor } from './operand.js';
import {
  draw,
  integersFrom,
  normalOp,
  RANDOM_OPTIONS,
  type RandomOptions,
  uniformOp,
} from './random.js';

export function like(
  op: string,
  input: Tensor,
  options: RandomOptions,
): RandomOptions & { dtype: DType } {
  requireTensor(input, op);
  optionsOf(op, options, RANDOM_OPTIONS);
  return {
    device: input.device,
    ...options,
    dtype: requireDtype(options.dtype, op) ?? input.dtype,
  };
}
/**
 * {@link rand} in the shape, dtype and device of `input`, unless options say others. @see PyTorch
 * `torch.rand_like`
 */
export const randLike = defineFunction(
  'randLike(input, /, *, dtype, device, requiresGrad, pinMemory, generator)',
  (input: Tensor, options: RandomOptions = {}): Tensor => {
    const given = like('randLike', input, options);
    return draw(
      uniformOp,
      input.shape,
      given.dtype,
      0,
      1,
      given,
      'randLike',
      emptyBeside(input, input.shape, given.dtype),
    );
  },
);
/**
 * {@link randn} in the shape, dtype and device of `input`, unless options say others. @see PyTorch
 * `torch.randn_like`
 */
export const randnLike = defineFunction(
  'randnLike(input, /, *, dtype, device, requiresGrad, pinMemory, generator)',
  (input: Tensor, options: RandomOptions = {}): Tensor => {
    const given = like('randnLike', input, options);
    return draw(
      normalOp,
      input.shape,
      given.dtype,
      0,
      1,
      given,
      'randnLike',
      emptyBeside(input, input.shape, given.dtype),
    );
  },
);

/**
 * {@link randint} in [low, high), in the shape, dtype and device of `input`, unless options say
 * others.
 *
 * @throws ArgumentError if the range is empty, or the dtype does not hold it
 * @see PyTorch `torch.randint_like`
 */
export const randintLike = defineFunction(
  'randintLike(input, /, low, high, *, dtype, device, requiresGrad, pinMemory, generator)',
  (input: Tensor, low: number, high: number | null = null, options: RandomOptions = {}): Tensor => {
    const given = like('randintLike', input, options);
    return integersFrom(
      'randintLike',
      high === null ? 0 : low,
      high ?? low,
      input.shape,
      given,
      emptyBeside(input, input.shape, given.dtype),
    );
  },
);
