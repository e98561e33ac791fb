/**
 * Random tensors: rand, randn, normal, randint, randperm. Numbers depend only on the seed, the
 * draw and the global index of the element, so they are the same on every device and mesh.
 *
 * Factories take a shape and {@link RandomOptions}: `dtype` (default: the floating default),
 * `device` (default: the current one), `generator`, `requiresGrad`, `pinMemory`. In-place fills
 * keep shape, dtype and device, round towards zero for integers, and have gradient 0.
 */

import type { CommandWriter } from '../core/command.js';
import { type Device, device as deviceOf, getDefaultDevice } from '../core/device.js';
import { dispatchOne } from '../core/dispatch.js';
import {
  bool,
  type DType,
  type DTypeLike,
  dtypeOf,
  getDefaultDtype,
  int64,
} from '../core/dtype.js';
import { iinfo } from '../core/dtype-info.js';
import { ArgumentError, DtypeError } from '../core/errors.js';
import { defineOp, type Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { checkNumber, optionsOf, shown, unexpected } from '../core/options.js';
import { drawnTogether, drawPlaceOf, Generator, nextDraw } from '../core/random.js';
import { broadcastShapes, checkSizes, contiguousStrides, type Shape } from '../core/shape.js';
import { defineFunction } from '../core/signature.js';
import { Tensor } from '../core/tensor.js';
import { overwritten } from './copy.js';
import { TENSOR_OPTIONS, type TensorOptions } from './factories.js';
import { alongside, requireDtype } from './operand.js';
import { finish } from './pinned.js';
import { type ElementIndex, randomRule } from './sharding/factories-and-random.js';
import { sizedFactory } from './sized.js';

const drawParams = {
  shape: param.value<Shape>(),
  dtype: param.value<DType>(),
  device: param.value<Device>(),
  seedLow: param.random(),
  seedHigh: param.random(),
  offset: param.random(),
  /** Of a shard of a larger tensor: which of its elements they are. */
  index: param.optional<ElementIndex>(),
};
/** The parameters of the distribution, under the kernel's names for them. */
const drawOf = (first: string, second: string | null) => ({
  ...drawParams,
  first: param.kernel(first),
  second: second === null ? param.value<number>() : param.kernel(second),
});
type Draw = ParamsOf<ReturnType<typeof drawOf>>;

function defineRandom(
  name: string,
  kernel: string,
  doc: string,
  first: string,
  second: string | null = null,
): Op<Draw> {
  return defineOp({
    name,
    doc,
    inputs: [],
    outputs: ['y'],
    operands: '(positions: indexView [...s]) -> (y: [...s])',
    params: drawOf(first, second),
    traits: ['strided-output'],
    sharding: randomRule<Draw>(),
    kernel,
    meta: (_inputs, { shape, dtype, device }) => [{ shape, strides: null, dtype, device }],
    lower: (command, _inputs, [y], { index }) => {
      writeIndex(command, y.shape, index);
      command.output(y);
    },
    vjp: (_ctx, g) => [g.zerosLike()],
    samples: () => [],
  });
}

/** The index of each element, by which its number is drawn. */
export function writeIndex(command: CommandWriter, shape: Shape, index?: ElementIndex): void {
  command.indexView(index?.start ?? 0, shape, index?.strides ?? contiguousStrides(shape));
}

const uniformOp = defineRandom(
  'randomUniform',
  'random_uniform',
  'Uniform numbers in [low, high).',
  'low',
  'high',
);
const normalOp = defineRandom('randomNormal', 'random_normal', 'Normal numbers.', 'mean', 'std');
const integerOp = defineRandom(
  'randomInteger',
  'random_integer',
  'Integers in [low, high).',
  'low',
  'high',
);
const bernoulliOp = defineRandom(
  'randomBernoulli',
  'random_bernoulli',
  'Ones with a probability, else zeros.',
  'probability',
);

/** @internal */
export { bernoulliOp, integerOp, normalOp, uniformOp };

/** Options of random factories. */
export interface RandomOptions extends TensorOptions {
  /** Where numbers come from; the default generator if not given. */
  generator?: Generator;
}

export const RANDOM_OPTIONS = `${TENSOR_OPTIONS} generator`;

/** Draws into a new tensor, or into one that is there. @internal */
export function draw(
  op: Op<Draw>,
  shape: Shape,
  dtypeLike: DTypeLike,
  first: number,
  second: number,
  options: RandomOptions,
  name: string,
  into: Tensor | null = null,
): Tensor {
  checkSizes(shape, name);
  optionsOf(name, options, RANDOM_OPTIONS);
  if (options.generator !== undefined && !(options.generator instanceof Generator))
    throw unexpected(name, 'generator', 'a Generator', options.generator);
  const dtype = dtypeOf(dtypeLike, name);
  if (op !== integerOp && op !== bernoulliOp && !dtype.isFloatingPoint)
    throw new DtypeError(`${name}: expected a floating point dtype, got ${dtype.name}`, {
      op: name,
      dtype: dtype.name,
    });
  const device =
    into?.device ?? (options.device === undefined ? getDefaultDevice() : deviceOf(options.device));
  const t = dispatchOne(
    op,
    [],
    { shape: [...shape], dtype, device, first, second, ...nextDraw(options.generator, into) },
    into === null ? null : overwritten(into),
  );
  return into === null || into.sharding !== null ? finish(t, options) : into;
}

/**
 * Uniform numbers in [0, 1). Shapes: `size`. Dtypes: the default floating one, or `dtype`.
 * Gradient: none.
 *
 * @throws ArgumentError for bad sizes; DeviceError for a device that is not there; AutogradError
 * for requiresGrad of integers
 * @see PyTorch `torch.rand`
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
 * Normal numbers of a given mean and standard deviation; either may be a tensor that gives one for
 * each element. Shapes: `size` (`[]`) for numbers, else the one that both broadcast to. Dtypes: the
 * default floating one or `dtype`; of tensors, that of the mean or else of `std`. Gradient: none
 * for numbers, both for tensors.
 *
 * @throws ArgumentError for bad sizes and a number below 0 (or NaN) as `std`; ShapeError,
 * DeviceError for tensors that do not meet
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
    const [m, s] = [mean, std].map((t) => (t instanceof Tensor ? t.shape : []));
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
 * @throws ArgumentError for bad sizes, bounds that are no integers or not low < high, and an
 * integer dtype that does not hold them; DeviceError
 * @see PyTorch `torch.randint`
 */
export const randint: Randint = (
  low: unknown,
  high?: unknown,
  size?: unknown,
  options?: unknown,
): Tensor =>
  Array.isArray(high) ? integers(0, low, high, size) : integers(low, high, size, options);

export function integersFrom(
  op: string,
  low: number,
  high: number,
  size: Shape,
  options: RandomOptions,
  into: Tensor | null = null,
): Tensor {
  for (const [name, value] of Object.entries({ low, high }))
    if (!Number.isSafeInteger(value))
      throw unexpected(op, name, 'an integer between -2^53 and 2^53', value);
  const dtype = requireDtype(optionsOf(op, options).dtype, op) ?? int64;
  requireRange(dtype, low, high, op);
  return draw(integerOp, size, dtype, low, high, options, op, into);
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
 * @throws ArgumentError if `n` is no non-negative integer; DeviceError for a device that is not
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
