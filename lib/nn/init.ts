/** Initialisation of parameters, in place and outside the graph. */
import { noGrad } from '../autograd/grad-mode.js';
import { float64 } from '../core/dtype.js';
import { ShapeError } from '../core/errors.js';
import { checkNumber, checkOneOf, unexpected } from '../core/options.js';
import { formatShape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { randn } from '../ops/random.js';

/** Activation that follows a layer; decides its gain. */
export type Nonlinearity = 'linear' | 'sigmoid' | 'tanh' | 'relu' | 'leaky_relu' | 'selu';

const nonlinearities: readonly Nonlinearity[] = ['linear', 'sigmoid', 'tanh', 'relu', 'leaky_relu', 'selu'];

/** The factor that keeps the variance through an activation. @see PyTorch `nn.init.calculate_gain` */
export function calculateGain(nonlinearity: Nonlinearity, slope = 0.01): number {
  checkOneOf('nn.init.calculateGain', 'nonlinearity', nonlinearity, nonlinearities);
  switch (nonlinearity) {
    case 'tanh':
      return 5 / 3;
    case 'relu':
      return Math.SQRT2;
    case 'leaky_relu':
      return Math.sqrt(2 / (1 + slope ** 2));
    case 'selu':
      return 3 / 4;
    default:
      return 1;
  }
}

function fans(t: Tensor): { fanIn: number; fanOut: number } {
  if (t.ndim < 2) throw new ShapeError(`nn.init: fan in and fan out need at least 2 dims, got shape ${formatShape(t.shape)}`, { shape: t.shape });
  const receptive = t.shape.slice(2).reduce((a, b) => a * b, 1);
  return { fanIn: (t.shape[1] as number) * receptive, fanOut: (t.shape[0] as number) * receptive };
}

/** Uniform numbers in [low, high). @throws ArgumentError unless low <= high */
export function uniform_(t: Tensor, low = 0, high = 1): Tensor {
  if (!(low <= high)) throw unexpected('nn.init.uniform_', '[low, high)', 'a range', [low, high]);
  return noGrad(() => t.uniform_(low, high));
}

/** Normal numbers. @throws ArgumentError for a negative standard deviation */
export function normal_(t: Tensor, mean = 0, std = 1): Tensor {
  checkNormal('nn.init.normal_', mean, std);
  return noGrad(() => t.normal_(mean, std));
}

function checkNormal(op: string, mean: unknown, std: unknown): void {
  checkNumber(op, 'mean', mean);
  checkNumber(op, 'std', std, { from: 0 });
}

/** Normal numbers, drawn again (by clamping the tails' quantiles) outside [low, high]. */
export function truncNormal_(t: Tensor, mean = 0, std = 1, low = -2, high = 2): Tensor {
  checkNormal('nn.init.truncNormal_', mean, std);
  if (!(low <= high)) throw unexpected('nn.init.truncNormal_', '[low, high]', 'a range', [low, high]);
  return noGrad(() => {
    t.normal_(mean, std);
    for (let i = 0; i < 8; i++) {
      const outside = t.lt(low).logicalOr(t.gt(high));
      t.copy_(t.clone().normal_(mean, std).where(outside, t));
    }
    return t.clamp_({ min: low, max: high });
  });
}

/** One value everywhere. */
export function constant_(t: Tensor, value: number): Tensor {
  return noGrad(() => t.fill_(value));
}

/** Ones. */
export const ones_ = (t: Tensor): Tensor => constant_(t, 1);
/** Zeros. */
export const zeros_ = (t: Tensor): Tensor => constant_(t, 0);

/** @see Glorot and Bengio, AISTATS 2010 */
export function xavierUniform_(t: Tensor, { gain = 1 } = {}): Tensor {
  const { fanIn, fanOut } = fans(t);
  const bound = gain * Math.sqrt(6 / (fanIn + fanOut));
  return uniform_(t, -bound, bound);
}

/** @see Glorot and Bengio, AISTATS 2010 */
export function xavierNormal_(t: Tensor, { gain = 1 } = {}): Tensor {
  const { fanIn, fanOut } = fans(t);
  return normal_(t, 0, gain * Math.sqrt(2 / (fanIn + fanOut)));
}

/** Options of Kaiming initialisation. */
export interface KaimingOptions {
  /** Slope of the leaky relu that follows. */
  a?: number;
  mode?: 'fan_in' | 'fan_out';
  nonlinearity?: Nonlinearity;
}

function kaimingStd(t: Tensor, { a = 0, mode = 'fan_in', nonlinearity = 'leaky_relu' }: KaimingOptions): number {
  checkOneOf('nn.init', 'mode', mode, ['fan_in', 'fan_out']);
  const fan = mode === 'fan_in' ? fans(t).fanIn : fans(t).fanOut;
  return fan === 0 ? 0 : calculateGain(nonlinearity, a) / Math.sqrt(fan);
}

/** @see He et al., arXiv:1502.01852 */
export function kaimingUniform_(t: Tensor, options: KaimingOptions = {}): Tensor {
  const bound = Math.sqrt(3) * kaimingStd(t, options);
  return uniform_(t, -bound, bound);
}

/** @see He et al., arXiv:1502.01852 */
export function kaimingNormal_(t: Tensor, options: KaimingOptions = {}): Tensor {
  return normal_(t, 0, kaimingStd(t, options));
}

/** The identity matrix. */
export function eye_(t: Tensor): Tensor {
  return noGrad(() => {
    t.zero_();
    t.diagonal().fill_(1);
    return t;
  });
}

/**
 * Rows (or, if there are more rows than columns, columns) that are orthogonal and of length `gain`; later dims count as columns.
 *
 * @throws ShapeError for fewer than two dims
 * @see Saxe et al., arXiv:1312.6120
 */
export function orthogonal_(t: Tensor, { gain = 1 } = {}): Tensor {
  if (t.ndim < 2) throw new ShapeError(`nn.init.orthogonal_: expected at least 2 dims, got shape ${formatShape(t.shape)}`, { shape: t.shape });
  return noGrad(() => {
    const rows = t.size(0);
    const columns = rows === 0 ? 0 : t.numel() / rows;
    const basis = randn([Math.min(rows, columns), Math.max(rows, columns)], { dtype: float64, device: t.device });
    for (let i = 0; i < basis.size(0); i++) orthogonalise(basis, i);
    return t.copy_((rows <= columns ? basis : basis.t()).mul(gain).reshape(t.shape));
  });
}

/** Makes row `i` orthogonal to those before it, and of length 1: Gram-Schmidt, twice for accuracy. */
function orthogonalise(basis: Tensor, i: number): void {
  const row = basis.select(0, i);
  const before = basis.narrow(0, 0, i);
  for (let pass = 0; pass < 2 && i > 0; pass++) row.sub_(before.t().mv(before.mv(row)));
  row.div_(row.norm());
}
