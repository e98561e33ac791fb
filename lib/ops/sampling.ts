/**
 * Draws whose probabilities are tensors: bernoulli and multinomial. They draw before they check: a
 * rank whose values are refused has then drawn as often as the others.
 */

import { float32, float64, getDefaultDtype } from '../core/dtype.js';
import { ArgumentError } from '../core/errors.js';
import { checkFlag, checkNumber } from '../core/options.js';
import { drawnTogether, drawPlaceOf } from '../core/random.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { checkedProbabilities, checkedWeights } from './draw-checks.js';
import { addMethod } from './method.js';
import { alongside, requireTensor } from './operand.js';
import type { RandomOptions } from './random.js';
import { rand, randLike } from './random-factories.js';

/**
 * 1 with the probability that each element gives, else 0. Shape and dtype of the input. Options:
 * `generator`. Gradient: none.
 *
 * @throws KernelError for a value outside [0, 1], possibly not before values are read;
 * ArgumentError unless `input` is a tensor
 * @see PyTorch `torch.bernoulli`
 */
export const bernoulli = defineFunction(
  'bernoulli(input, /, *, generator)',
  (input: Tensor, options: Pick<RandomOptions, 'generator'> = {}): Tensor => {
    requireTensor(input, 'bernoulli');
    const dtype = input.dtype === float64 ? float64 : float32;
    const drawn = randLike(input, { ...options, dtype });
    return drawn.lt(checkedProbabilities(input)).to(input.dtype);
  },
);

/**
 * Indices drawn with the weights of the last dim, which need not add up to 1; each at most once
 * unless `replacement` (false) is set.
 *
 * Shapes: `[..., n]` gives `[..., numSamples]`. Dtypes: any weights (computed in float32), int64
 * result. Gradient: none.
 *
 * @throws ArgumentError for a count below 1, or above n without replacement; KernelError for
 * weights that are negative, not finite, all 0, or too few above 0, possibly not before values are
 * read
 * @see PyTorch `torch.multinomial`
 * @example
 * multinomial(tensor([[0, 1], [1, 0]]), 1); // [[1], [0]]
 */
export const multinomial = defineFunction(
  'multinomial(weights, /, numSamples, replacement, *, generator)',
  (
    weights: Tensor,
    numSamples: number,
    replacement = false,
    { generator }: Pick<RandomOptions, 'generator'> = {},
  ): Tensor => {
    requireTensor(weights, 'multinomial');
    checkFlag('multinomial', 'replacement', replacement);
    const n = weights.sizes[weights.sizes.length - 1] ?? 0;
    checkNumber('multinomial', 'numSamples', numSamples, { whole: true });
    if (numSamples < 1 || (!replacement && numSamples > n))
      throw new ArgumentError(`multinomial: cannot draw ${numSamples} of ${n}`, {
        op: 'multinomial',
        numSamples,
      });
    const drawOptions = generator ? { generator } : {};
    const checked = () => checkedWeights(weights, replacement ? 1 : numSamples).float();
    if (!replacement) {
      // Takes the largest u^(1/w), which has the order of log(u) / w (exponential races).
      return randLike(weights, { dtype: getDefaultDtype(), ...drawOptions })
        .log()
        .div(checked())
        .topk(numSamples, -1).indices;
    }
    const points = drawnTogether(drawPlaceOf(weights), () =>
      rand([...weights.sizes.slice(0, -1), numSamples], { device: weights.device, ...drawOptions }),
    );
    const sums = checked().cumsum(-1);
    const drawn = alongside(weights, points).mul(sums.narrow(-1, n - 1, 1));
    return sums
      .unsqueeze(-2)
      .le(drawn.unsqueeze(-1))
      .sum(-1)
      .clamp({ max: n - 1 });
  },
);

addMethod('bernoulli', methodOf(bernoulli));
addMethod('multinomial', methodOf(multinomial));

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * Ones with the probability that each element gives, else zeros; the same as {@link bernoulli}.
     */
    bernoulli: MethodOf<typeof bernoulli>;
    /** Indices drawn with the weights of the last dim; the same as {@link multinomial}. */
    multinomial: MethodOf<typeof multinomial>;
  }
}
