/**
 * Random tensors: rand, randn, normal, randint, randperm and their `…Like` twins, by PyTorch's
 * names.
 *
 * Factories take a shape and {@link RandomOptions}: `dtype` (default: the floating default),
 * `device` (default: the current one), `generator`, `requiresGrad`, `pinMemory`.
 */

import { bool, type DType, getDefaultDtype, int64 } from '../core/dtype.js';
import { iinfo } from '../core/dtype-info.js';
import { ArgumentError } from '../core/errors.js';
import { checkNumber, optionsOf, shown, unexpected } from '../core/options.js';
import { drawnTogether, drawPlaceOf } from '../core/random.js';
import { broadcastShapes, type Shape, stridesLike } from '../core/shape.js';
import { defineFunction } from '../core/signature.js';
import { Tensor } from '../core/tensor.js';
import { emptyBeside } from './factories.js';
import { alongside, requireDtype, requireTensor } from './operand.js';
import { finish } from './pinned.js';
import {
  draw,
  integerOp,
  normalOp,
  RANDOM_OPTIONS,
  type RandomOptions,
  uniformOp,
} from './random.js';
import { sizedFactory } from './sized.js';

/**
 * Uniform numbers in [0, 1). Shapes: `size`. Dtypes: the default floating one, or `dtype`.
 * Gradient: none.
 *
 * @throws ArgumentError for bad sizes; DeviceError for a device that is not there; AutogradError
 * for requiresGrad of integers
 * @see PyTorch `torch.rand`
 * @example
 * rand([2, 3]).shape; // [2, 3]
 * rand([100]).lt(1).all(); // true
 */
export const rand = sizedFactory<RandomOptions>(
  defineFunction(
    'rand(size, *, dtype, device, requiresGrad, pinMemory, generator)',
    (size: Shape, options: RandomOptions = {}): Tensor => {
      return draw(uniformOp, size, options.dtype ?? getDefaultDtype(), 0, 1, options, 'rand');
    },
  ),
);

/**
 * Normal numbers of mean 0 and standard deviation 1. Shapes: `size`. Dtypes: the default floating
 * one, or `dtype`. Gradient: none.
 *
 * @throws ArgumentError for bad sizes; DeviceError for a device that is not there; AutogradError
 * for requiresGrad of integers
 * @see PyTorch `torch.randn`
 * @example
 * randn([2, 3]).shape; // [2, 3]
 * randn([2, 3], { device: 'cuda', requiresGrad: true }).requiresGrad; // true
 */
export const randn = sizedFactory<RandomOptions>(
  defineFunction(
    'randn(size, *, dtype, device, requiresGrad, pinMemory, generator)',
    (size: Shape, options: RandomOptions = {}): Tensor => {
      return draw(normalOp, size, options.dtype ?? getDefaultDtype(), 0, 1, options, 'randn');
    },
  ),
);

/** The forms of {@link normal}. */
interface Normal {
  (mean: number, std: number, size: Shape, options?: RandomOptions): Tensor;
  (mean: number, std: number, options: RandomOptions & { size: Shape }): Tensor;
  (
    mean: Tensor | number,
    std: Tensor | number,
    size?: null,
    options?: Pick<RandomOptions, 'generator'>,
  ): Tensor;
  (mean: Tensor | number, std: Tensor | number, options: Pick<RandomOptions, 'generator'>): Tensor;
}

/**
 * Normal numbers of a given mean and standard deviation; either may be a tensor with one value for
 * each element. Shapes: `size` (`[]`) for numbers, else the one that both broadcast to. Dtypes: the
 * default floating one or `dtype`; of tensors, that of the mean or else of `std`. Gradient: none
 * for numbers, both for tensors.
 *
 * @throws ArgumentError for bad sizes and a number below 0 (or NaN) as `std`; ShapeError,
 * DeviceError for tensors that do not broadcast or are on two devices
 * @see PyTorch `torch.normal`
 */
export const normal = defineFunction(
  'normal(mean, /, std, size, *, dtype, device, requiresGrad, pinMemory, generator)',
  (
    mean: Tensor | number,
    std: Tensor | number,
    size: Shape | null = null,
    options: RandomOptions = {},
  ): Tensor => {
    for (const [name, value] of Object.entries({ mean, std }))
      if (!(value instanceof Tensor)) checkNumber('normal', name, value);
    if (typeof std === 'number') requireSpread(std, 'normal');
    if (typeof mean === 'number' && typeof std === 'number')
      return draw(
        normalOp,
        size ?? [],
        options.dtype ?? getDefaultDtype(),
        mean,
        std,
        options,
        'normal',
      );
    const [m, s] = [mean, std].map((t) => (t instanceof Tensor ? t.sizes : []));
    const like = (mean instanceof Tensor ? mean : std) as Tensor;
    const shape = broadcastShapes(m as Shape, s as Shape, 'normal');
    const noise = drawnTogether(drawPlaceOf(like), () =>
      randn(shape, { ...options, dtype: like.dtype, device: like.device }),
    );
    return alongside(like, noise).mul(std).add(mean);
  },
) as unknown as Normal;

/** @throws ArgumentError @internal */
export function requireSpread(std: number, op: string): void {
  if (typeof std !== 'number' || !(std >= 0))
    throw new ArgumentError(
      `${op}: expected a standard deviation of 0 or more, got ${shown(std)}`,
      { op, std },
    );
}

/** The forms of {@link randint}. */
interface Randint {
  (low: number, high: number, size: Shape, options?: RandomOptions): Tensor;
  (low: number, high: number, options: RandomOptions & { size: Shape }): Tensor;
  (high: number, size: Shape, options?: RandomOptions): Tensor;
  (options: RandomOptions & { low?: number; high: number; size: Shape }): Tensor;
}

const integers = defineFunction(
  'randint(low, high, size, *, dtype, device, requiresGrad, pinMemory, generator)',
  (
    low: number | undefined = 0,
    high: number | undefined = undefined,
    size: Shape = [],
    options: RandomOptions = {},
  ): Tensor => integersFrom('randint', low, high as number, size, options),
) as (...args: unknown[]) => Tensor;

/**
 * Integers in [low, high), or in [0, high) without `low`. Shapes: `size`. Dtypes: int64, or
 * `dtype`, also a floating one. Gradient: none.
 *
 * @throws ArgumentError for bad sizes, bounds that are not integers with low < high, and an integer
 * dtype that does not hold them; DeviceError
 * @see PyTorch `torch.randint`
 * @example
 * randint(0, 10, [2, 3]).shape; // [2, 3]
 * randint(0, 10, [100]).lt(10).all(); // true
 */
export const randint: Randint = (
  low: unknown,
  high?: unknown,
  size?: unknown,
  options?: unknown,
): Tensor =>
  Array.isArray(high) ? integers(0, low, high, size) : integers(low, high, size, options);

function integersFrom(
  op: string,
  low: number,
  high: number,
  size: Shape,
  options: RandomOptions,
  into: Tensor | null = null,
  strides?: Shape,
): Tensor {
  for (const [name, value] of Object.entries({ low, high }))
    if (!Number.isSafeInteger(value))
      throw unexpected(op, name, 'an integer between -2^53 and 2^53', value);
  const dtype = requireDtype(optionsOf(op, options).dtype, op) ?? int64;
  requireRange(dtype, low, high, op);
  return draw(integerOp, size, dtype, low, high, options, op, into, strides);
}

/** @throws ArgumentError where an integer dtype does not hold all of [low, high) @internal */
export function requireRange(dtype: DType, low: number, high: number, op: string): void {
  if (!(low < high))
    throw new ArgumentError(`${op}: expected low < high, got ${low} and ${high}`, {
      op,
      low,
      high,
    });
  if (dtype.isFloatingPoint) return;
  const { min, max } = dtype === bool ? { min: 0, max: 1 } : iinfo(dtype);
  if (low < min || high - 1 > max)
    throw new ArgumentError(
      `${op}: ${dtype.name} does not hold all integers from ${low} to ${high - 1}`,
      { op, low, high, dtype: dtype.name },
    );
}

/**
 * The integers 0 to n - 1 in random order. Shapes: `[n]`. Dtypes: int64, or `dtype`. Gradient:
 * none.
 *
 * @throws ArgumentError if `n` is not a non-negative integer; DeviceError for a device that is not
 * there; AutogradError for requiresGrad of integers
 * @see PyTorch `torch.randperm`
 */
export const randperm = defineFunction(
  'randperm(n, /, *, dtype, device, requiresGrad, pinMemory, generator)',
  (n: number, options: RandomOptions = {}): Tensor => {
    optionsOf('randperm', options);
    checkNumber('randperm', 'n', n, { from: 0, whole: true });
    const { dtype: given, requiresGrad, pinMemory, ...rest } = options;
    const dtype = requireDtype(given, 'randperm') ?? int64;
    requireRange(dtype, 0, Math.max(n, 1), 'randperm');
    const order = randint(0, 2 ** 52, [n], { ...rest, dtype: int64 })
      .argsort(0)
      .to(dtype);
    return finish(order, {
      ...(requiresGrad ? { requiresGrad } : {}),
      ...(pinMemory ? { pinMemory } : {}),
    });
  },
);

function like(op: string, input: Tensor, options: RandomOptions): RandomOptions & { dtype: DType } {
  requireTensor(input, op);
  optionsOf(op, options, RANDOM_OPTIONS);
  return {
    device: input.device,
    ...options,
    dtype: requireDtype(options.dtype, op) ?? input.dtype,
  };
}
/**
 * {@link rand} in the shape, dtype, device and layout of `input`, unless options say others. @see
 * PyTorch `torch.rand_like`
 */
export const randLike = defineFunction(
  'randLike(input, /, *, dtype, device, requiresGrad, pinMemory, generator)',
  (input: Tensor, options: RandomOptions = {}): Tensor => {
    const given = like('randLike', input, options);
    return draw(
      uniformOp,
      input.sizes,
      given.dtype,
      0,
      1,
      given,
      'randLike',
      emptyBeside(input, input.sizes, given.dtype),
      stridesLike(input.sizes, input.strides),
    );
  },
);
/**
 * {@link randn} in the shape, dtype, device and layout of `input`, unless options say others. @see
 * PyTorch `torch.randn_like`
 */
export const randnLike = defineFunction(
  'randnLike(input, /, *, dtype, device, requiresGrad, pinMemory, generator)',
  (input: Tensor, options: RandomOptions = {}): Tensor => {
    const given = like('randnLike', input, options);
    return draw(
      normalOp,
      input.sizes,
      given.dtype,
      0,
      1,
      given,
      'randnLike',
      emptyBeside(input, input.sizes, given.dtype),
      stridesLike(input.sizes, input.strides),
    );
  },
);

/**
 * {@link randint} in [low, high), in the shape, dtype, device and layout of `input`, unless options
 * say others.
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
      input.sizes,
      given,
      emptyBeside(input, input.sizes, given.dtype),
      stridesLike(input.sizes, input.strides),
    );
  },
);
