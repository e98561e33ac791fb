/** The `nn.init` namespace: initialises parameters in place, unseen by autograd. */
import { noGrad } from '../autograd/grad-mode.js';
import { float64 } from '../core/dtype.js';
import { ShapeError } from '../core/errors.js';
import { checkNumber, checkOneOf, unexpected } from '../core/options.js';
import { drawnTogether, drawPlaceOf } from '../core/random.js';
import { formatShape } from '../core/shape.js';
import { defineFunction } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { alongside, requireTensor } from '../ops/operand.js';
import { randn } from '../ops/random-factories.js';

export * from '../core/absent-names/init.js';

/** Activation after a layer, which decides the gain of its weights. */
export type Nonlinearity = 'linear' | 'sigmoid' | 'tanh' | 'relu' | 'leaky_relu' | 'selu';

const nonlinearities: readonly Nonlinearity[] = [
  'linear',
  'sigmoid',
  'tanh',
  'relu',
  'leaky_relu',
  'selu',
];

/**
 * The factor that keeps the variance across an activation. @see PyTorch `nn.init.calculate_gain`
 */
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

/** The numbers of inputs and outputs of each unit. */
function fans(op: string, t: Tensor): { fanIn: number; fanOut: number } {
  requireTensor(t, op, 't');
  if (t.ndim < 2)
    throw new ShapeError(
      `${op}: fan in and fan out need at least 2 dims, got shape ${formatShape(t.sizes)}`,
      { op, shape: t.sizes },
    );
  const receptive = t.sizes.slice(2).reduce((a, b) => a * b, 1);
  return { fanIn: (t.sizes[1] as number) * receptive, fanOut: (t.sizes[0] as number) * receptive };
}

/** Uniform numbers in [a, b). @throws ArgumentError unless a <= b */
export const uniform_ = defineFunction(
  'uniform_(tensor, /, a, b)',
  (t: Tensor, a = 0, b = 1): Tensor => {
    requireTensor(t, 'nn.init.uniform_', 't');
    checkRange('nn.init.uniform_', '[a, b)', a, b);
    return noGrad(() => t.uniform_(a, b));
  },
);

/** Normal numbers. @throws ArgumentError if the standard deviation is negative */
export const normal_ = defineFunction(
  'normal_(tensor, /, mean, std)',
  (t: Tensor, mean = 0, std = 1): Tensor => {
    requireTensor(t, 'nn.init.normal_', 't');
    checkNormal('nn.init.normal_', mean, std);
    return noGrad(() => t.normal_(mean, std));
  },
);

function checkNormal(op: string, mean: unknown, std: unknown): void {
  checkNumber(op, 'mean', mean);
  checkNumber(op, 'std', std, { from: 0 });
}

function checkRange(op: string, name: string, low: unknown, high: unknown): void {
  if (typeof low !== 'number' || typeof high !== 'number' || !(low <= high))
    throw unexpected(op, name, 'a range', [low, high]);
}

/** Normal numbers in [a, b]. Numbers outside are drawn again, and clamped after 8 draws. */
export const truncNormal_ = defineFunction(
  'truncNormal_(tensor, /, mean, std, a, b)',
  (t: Tensor, mean = 0, std = 1, a = -2, b = 2): Tensor => {
    requireTensor(t, 'nn.init.truncNormal_', 't');
    checkNormal('nn.init.truncNormal_', mean, std);
    checkRange('nn.init.truncNormal_', '[a, b]', a, b);
    return noGrad(() => {
      t.normal_(mean, std);
      for (let i = 0; i < 8; i++) {
        const outside = t.lt(a).logicalOr(t.gt(b));
        t.copy_(t.clone().normal_(mean, std).where(outside, t));
      }
      return t.clamp_({ min: a, max: b });
    });
  },
);

/** Sets every element to one value. */
export const constant_ = defineFunction(
  'constant_(tensor, /, val)',
  (t: Tensor, val: number): Tensor => {
    return fill('nn.init.constant_', t, val);
  },
);

function fill(op: string, t: Tensor, value: number): Tensor {
  requireTensor(t, op, 't');
  return noGrad(() => t.fill_(value));
}

/** Ones. */
export const ones_ = (t: Tensor): Tensor => fill('nn.init.ones_', t, 1);
/** Zeros. */
export const zeros_ = (t: Tensor): Tensor => fill('nn.init.zeros_', t, 0);

/** @throws ArgumentError if the gain is below 0 */
function checkGain(op: string, gain: unknown): void {
  checkNumber(op, 'gain', gain, { from: 0 });
}

/**
 * Uniform numbers; `gain` scales the values, see {@link calculateGain}. @see Glorot
 * and Bengio, AISTATS 2010
 */
export const xavierUniform_ = defineFunction(
  'xavierUniform_(tensor, /, gain)',
  (t: Tensor, gain = 1): Tensor => {
    const { fanIn, fanOut } = fans('nn.init.xavierUniform_', t);
    checkGain('nn.init.xavierUniform_', gain);
    const bound = gain * Math.sqrt(6 / (fanIn + fanOut));
    return uniform_(t, -bound, bound);
  },
);

/**
 * Normal numbers; `gain` scales the values, see {@link calculateGain}. @see Glorot
 * and Bengio, AISTATS 2010
 */
export const xavierNormal_ = defineFunction(
  'xavierNormal_(tensor, /, gain)',
  (t: Tensor, gain = 1): Tensor => {
    const { fanIn, fanOut } = fans('nn.init.xavierNormal_', t);
    checkGain('nn.init.xavierNormal_', gain);
    return normal_(t, 0, gain * Math.sqrt(2 / (fanIn + fanOut)));
  },
);

type FanMode = 'fan_in' | 'fan_out';

function kaimingStd(
  op: string,
  t: Tensor,
  a: number,
  mode: FanMode,
  nonlinearity: Nonlinearity,
): number {
  const { fanIn, fanOut } = fans(op, t);
  checkNumber(op, 'a', a);
  checkOneOf(op, 'mode', mode, ['fan_in', 'fan_out']);
  const fan = mode === 'fan_in' ? fanIn : fanOut;
  return fan === 0 ? 0 : calculateGain(nonlinearity, a) / Math.sqrt(fan);
}

/**
 * Uniform numbers; `a` is the slope of the leaky relu that follows. @see He et al.,
 * arXiv:1502.01852
 */
export const kaimingUniform_ = defineFunction(
  'kaimingUniform_(tensor, /, a, mode, nonlinearity)',
  (
    t: Tensor,
    a = 0,
    mode: FanMode = 'fan_in',
    nonlinearity: Nonlinearity = 'leaky_relu',
  ): Tensor => {
    const bound = Math.sqrt(3) * kaimingStd('nn.init.kaimingUniform_', t, a, mode, nonlinearity);
    return uniform_(t, -bound, bound);
  },
);

/**
 * Normal numbers; `a` is the slope of the leaky relu that follows. @see He et al., arXiv:1502.01852
 */
export const kaimingNormal_ = defineFunction(
  'kaimingNormal_(tensor, /, a, mode, nonlinearity)',
  (t: Tensor, a = 0, mode: FanMode = 'fan_in', nonlinearity: Nonlinearity = 'leaky_relu'): Tensor =>
    normal_(t, 0, kaimingStd('nn.init.kaimingNormal_', t, a, mode, nonlinearity)),
);

/** The identity matrix. */
export function eye_(t: Tensor): Tensor {
  requireTensor(t, 'nn.init.eye_', 't');
  if (t.ndim !== 2)
    throw new ShapeError(`nn.init.eye_: expected a matrix, got shape ${formatShape(t.sizes)}`, {
      shape: t.sizes,
    });
  return noGrad(() => {
    t.zero_();
    t.diagonal().fill_(1);
    return t;
  });
}

/**
 * Orthogonal rows of length `gain`, or orthogonal columns if there are more rows than columns. All
 * dims but the first count as columns.
 *
 * @throws ShapeError if there are fewer than two dims
 * @see Saxe et al., arXiv:1312.6120
 */
export const orthogonal_ = defineFunction(
  'orthogonal_(tensor, /, gain)',
  (t: Tensor, gain = 1): Tensor => {
    requireTensor(t, 'nn.init.orthogonal_', 't');
    checkGain('nn.init.orthogonal_', gain);
    if (t.ndim < 2)
      throw new ShapeError(
        `nn.init.orthogonal_: expected at least 2 dims, got shape ${formatShape(t.sizes)}`,
        { shape: t.sizes },
      );
    if (t.isMeta) return t;
    return noGrad(() => {
      const rows = t.size(0);
      const columns = rows === 0 ? 0 : t.numel() / rows;
      const size = [Math.min(rows, columns), Math.max(rows, columns)];
      const basis = drawnTogether(drawPlaceOf(t), () =>
        randn(size, { dtype: float64, device: t.device }),
      );
      for (let i = 0; i < basis.size(0); i++) orthogonalise(basis, i);
      return t.copy_(
        alongside(t, (rows <= columns ? basis : basis.t()).mul(gain).reshape(t.sizes)),
      );
    });
  },
);

/** Makes row `i` orthogonal to the rows before it and of length 1 (Gram-Schmidt, run twice). */
function orthogonalise(basis: Tensor, i: number): void {
  const row = basis.select(0, i);
  const before = basis.narrow(0, 0, i);
  for (let pass = 0; pass < 2 && i > 0; pass++) row.sub_(before.t().mv(before.mv(row)));
  row.div_(row.norm());
}
