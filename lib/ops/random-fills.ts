/**
 * Tensors filled in place with random numbers: uniform_, normal_, bernoulli_, random_,
 * exponential_.
 */
import { bool } from '../core/dtype.js';
import { finfo, iinfo } from '../core/dtype-info.js';
import { ArgumentError } from '../core/errors.js';
import { checkNumber, checkProbability } from '../core/options.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { addMethod } from './method.js';
import { bernoulliOp, draw, integerOp, normalOp, type RandomOptions, uniformOp } from './random.js';
import { randLike, requireRange, requireSpread } from './random-factories.js';

/** The options of a fill. */
export type GeneratorOption = Pick<RandomOptions, 'generator'>;

/** @internal */
export const uniform_ = defineFunction(
  'uniform_(input, /, from, to, *, generator)',
  (input: Tensor, from = 0, to = 1, options: GeneratorOption = {}): Tensor => {
    for (const [name, value] of Object.entries({ from, to })) checkNumber('uniform_', name, value);
    if (!(from <= to))
      throw new ArgumentError(`uniform_: expected from <= to, got ${from} and ${to}`, {
        op: 'uniform_',
        from,
        to,
      });
    return draw(uniformOp, input.sizes, input.dtype, from, to, options, 'uniform_', input);
  },
);
addMethod('uniform_', methodOf(uniform_));

/** @internal */
export const normal_ = defineFunction(
  'normal_(input, /, mean, std, *, generator)',
  (input: Tensor, mean = 0, std = 1, options: GeneratorOption = {}): Tensor => {
    checkNumber('normal_', 'mean', mean);
    requireSpread(std, 'normal_');
    return draw(normalOp, input.sizes, input.dtype, mean, std, options, 'normal_', input);
  },
);
addMethod('normal_', methodOf(normal_));

/** @internal */
export const bernoulli_ = defineFunction(
  'bernoulli_(input, /, p, *, generator)',
  (input: Tensor, p = 0.5, options: GeneratorOption = {}): Tensor => {
    checkProbability('bernoulli_', 'p', p);
    return draw(bernoulliOp, input.sizes, input.dtype, p, 0, options, 'bernoulli_', input);
  },
);
addMethod('bernoulli_', methodOf(bernoulli_));

/** @internal */
export const random_ = defineFunction(
  'random_(input, /, from, to, *, generator)',
  (
    input: Tensor,
    from = 0,
    to: number | null | undefined = undefined,
    options: GeneratorOption = {},
  ): Tensor => {
    // a single number is the upper bound
    const [low, high = null] = to === undefined && from !== 0 ? [0, from] : [from, to];
    const most = input.dtype.isFloatingPoint
      ? 2 / finfo(input.dtype).eps
      : Math.min(2 ** 53, Number(input.dtype === bool ? 1 : iinfo(input.dtype).max) + 1);
    checkNumber('random_', 'from', low);
    if (high !== null) checkNumber('random_', 'to', high);
    requireRange(input.dtype, low, high ?? most, 'random_');
    return draw(integerOp, input.sizes, input.dtype, low, high ?? most, options, 'random_', input);
  },
);
addMethod('random_', methodOf(random_));

/** @internal */
export const exponential_ = defineFunction(
  'exponential_(input, /, lambd, *, generator)',
  (input: Tensor, lambd = 1, options: GeneratorOption = {}): Tensor => {
    checkNumber('exponential_', 'lambd', lambd, { above: 0 });
    const uniform = randLike(input, options);
    return input.copy_(uniform.neg().log1p().div(-lambd));
  },
);
addMethod('exponential_', methodOf(exponential_));

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * Fills with uniform numbers in [from, to), by default [0, 1). @throws ArgumentError unless
     * from <= to; InPlaceError as {@link Tensor.add_}
     */
    uniform_: MethodOf<typeof uniform_, this>;
    /**
     * Fills with normal numbers of mean 0 and standard deviation 1 if not given. @throws
     * ArgumentError for std below 0; InPlaceError as {@link Tensor.add_}
     */
    normal_: MethodOf<typeof normal_, this>;
    /**
     * Fills with ones, with probability p (0.5, a number), and zeros. @throws ArgumentError unless
     * 0 <= p <= 1; InPlaceError as {@link Tensor.add_}
     */
    bernoulli_: MethodOf<typeof bernoulli_, this>;
    /**
     * Fills with integers in [from, to), a single number is `to`; without numbers, up to all that
     * the dtype holds exactly (at most 2^53).
     *
     * @throws ArgumentError unless from < to, and an integer dtype holds them; InPlaceError as
     * {@link Tensor.add_}
     */
    random_: MethodOf<typeof random_, this>;
    /**
     * Fills with exponentially distributed numbers of rate `lambd` (1), of mean 1 / lambd.
     *
     * @throws ArgumentError unless the rate is above 0; InPlaceError as {@link Tensor.add_}
     */
    exponential_: MethodOf<typeof exponential_, this>;
  }
}
