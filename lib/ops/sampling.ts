/** Draws whose probabilities are tensors: bernoulli and multinomial. */

import { float32, float64, getDefaultDtype } from '../core/dtype.js';
import { ArgumentError } from '../core/errors.js';
import { checkFlag, checkNumber } from '../core/options.js';
import { drawnTogether, drawPlaceOf } from '../core/random.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { addMethod } from './method.js';
import { alongside, requireTensor } from './operand.js';
import type { RandomOptions } from './random.js';
import { rand, randLike } from './random-factories.js';

/**
 * 1 with the probability that each element gives, else 0. Shape and dtype of the input. Options:
 * `generator`. Gradient: none.
 *
 * @throws ArgumentError for a value outside [0, 1] on the CPU, where the check blocks; on a GPU
 * values are not checked
 * @see PyTorch `torch.bernoulli`
 */
export const bernoulli = defineFunction(
  'bernoulli(input, /, *, generator)',
  (input: Tensor, options: Pick<RandomOptions, 'generator'> = {}): Tensor => {
    requireTensor(input, 'bernoulli');
    requireOnCpu(
      'bernoulli',
      input,
      (p) => p.ge(0).logicalAnd(p.le(1)),
      'expected probabilities between 0 and 1',
    );
    // In low precision the probabilities would be multiples of 1/256.
    const dtype = input.dtype === float64 ? float64 : float32;
    return randLike(input, { ...options, dtype })
      .lt(input)
      .to(input.dtype);
  },
);

/**
 * @throws ArgumentError unless all elements are valid. Blocks. Skips the check for tensors on a
 * GPU, distributed ones, those in a capture, and those for which this rank would wait for another
 * rank of the process.
 */
function requireOnCpu(
  op: string,
  input: Tensor,
  isRight: (t: Tensor) => Tensor,
  expected: string,
): void {
  if (input.device.type !== 'cpu' || input.isFake || input.sharding !== null || input.numel() === 0)
    return;
  if (input.device.runtime.world.mustNotWait()) return;
  const wrong = isRight(input.detach()).logicalNot();
  if (!wrong.any().item()) return;
  const [value] = input.detach().maskedSelect(wrong).toTypedArray();
  throw new ArgumentError(`${op}: ${expected}, got ${String(value)}`, { op, given: value });
}

/**
 * Indices drawn with the weights of the last dim, which need not add up to 1; each at most once
 * unless `replacement` (false) is set.
 *
 * Shapes: `[..., n]` gives `[..., numSamples]`. Dtypes: any weights (computed in float32), int64
 * result. Gradient: none.
 *
 * @throws ArgumentError for a count below 1, or above n without replacement; and on the CPU, where
 * the check blocks, for weights that are negative, not finite, all 0, or too few above 0
 * @see PyTorch `torch.multinomial`
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
    const n = weights.shape[weights.shape.length - 1] ?? 0;
    checkNumber('multinomial', 'numSamples', numSamples, { whole: true });
    if (numSamples < 1 || (!replacement && numSamples > n))
      throw new ArgumentError(`multinomial: cannot draw ${numSamples} of ${n}`, {
        op: 'multinomial',
        numSamples,
      });
    requireOnCpu(
      'multinomial',
      weights,
      (w) => w.ge(0).logicalAnd(w.isfinite()),
      'expected weights of 0 or more',
    );
    requireOnCpu(
      'multinomial',
      weights.detach().sum(-1),
      (total) => total.gt(0),
      'expected a positive sum of weights',
    );
    if (!replacement)
      requireOnCpu(
        'multinomial',
        weights.detach().gt(0).sum(-1),
        (count) => count.ge(numSamples),
        `expected ${numSamples} weights above 0 or replacement`,
      );
    const drawOptions = generator ? { generator } : {};
    if (!replacement) {
      // Takes the largest u^(1/w), which has the order of log(u) / w (exponential races).
      return randLike(weights, { dtype: getDefaultDtype(), ...drawOptions })
        .log()
        .div(weights.float())
        .topk(numSamples, -1).indices;
    }
    const sums = weights.float().cumsum(-1);
    const points = drawnTogether(drawPlaceOf(weights), () =>
      rand([...weights.shape.slice(0, -1), numSamples], { device: weights.device, ...drawOptions }),
    );
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
