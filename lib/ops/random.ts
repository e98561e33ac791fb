/**
 * Random tensors. Numbers depend on seed, draw and global element index only: the same on every
 * device and mesh.
 *
 * Factories take a shape and {@link RandomOptions}: `dtype` (the default floating one), `device`
 * (the default one), `generator`, `requiresGrad`, `pinMemory`. Methods that fill keep shape, dtype
 * and device; integers get numbers rounded towards zero. Their gradient is 0: nothing flows to what
 * was there.
 */

import type { CommandWriter } from '../core/command.js';
import { type Device, device as deviceOf, getDefaultDevice } from '../core/device.js';
import { dispatchOne } from '../core/dispatch.js';
import {
  bool,
  type DType,
  type DTypeLike,
  dtypeOf,
  float32,
  float64,
  getDefaultDtype,
  int64,
} from '../core/dtype.js';
import { iinfo } from '../core/dtype-info.js';
import { ArgumentError, DtypeError } from '../core/errors.js';
import { defineOp, type Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import {
  checkFlag,
  checkNumber,
  checkProbability,
  optionsOf,
  shown,
  unexpected,
} from '../core/options.js';
import { drawnTogether, drawPlaceOf, Generator, nextDraw } from '../core/random.js';
import { broadcastShapes, checkSizes, contiguousStrides, type Shape } from '../core/shape.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import { Tensor } from '../core/tensor.js';
import { overwrite } from './composite.js';
import { overwritten } from './copy.js';
import { emptyBeside, TENSOR_OPTIONS, type TensorOptions } from './factories.js';
import { addMethod } from './method.js';
import { alongside, requireDtype, requireFloating, requireTensor } from './operand.js';
import { finish } from './pinned.js';
import { sampleTensor } from './samples.js';
import { dropoutRule, type ElementIndex, randomRule } from './sharding/factories-and-random.js';
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
function writeIndex(command: CommandWriter, shape: Shape, index?: ElementIndex): void {
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

const RANDOM_OPTIONS = `${TENSOR_OPTIONS} generator`;

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

function integersFrom(
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

/**
 * 1 with the probability that each element gives, else 0. Shape and dtype of the input. Options:
 * `generator`. Gradient: none.
 *
 * @throws ArgumentError for what is no probability, on the CPU, which looks at the values (and
 * blocks); on a GPU nobody waits for them
 * @see PyTorch `torch.bernoulli`
 */
export const bernoulli = defineFunction(
  'bernoulli(input, /, *, generator)',
  (input: Tensor, options: Pick<RandomOptions, 'generator'> = {}): Tensor => {
    requireTensor(input, 'bernoulli');
    requireOnCpu(
      input,
      (p) => p.ge(0).logicalAnd(p.le(1)),
      'bernoulli: expected probabilities between 0 and 1',
    );
    // In low precision the chances would be multiples of 1/256.
    const dtype = input.dtype === float64 ? float64 : float32;
    return randLike(input, { ...options, dtype })
      .lt(input)
      .to(input.dtype);
  },
);

/**
 * @throws ArgumentError unless all elements are as they should be. Blocks; tensors of a GPU, of
 * several ranks and of a capture are taken on trust, and those for which this rank would have to
 * wait for another one of the process.
 */
function requireOnCpu(input: Tensor, isRight: (t: Tensor) => Tensor, message: string): void {
  if (input.device.type !== 'cpu' || input.isFake || input.sharding !== null || input.numel() === 0)
    return;
  if (input.device.runtime.world.mustNotWait()) return;
  const wrong = isRight(input.detach()).logicalNot();
  if (!wrong.any().item()) return;
  const [value] = input.detach().maskedSelect(wrong).toTypedArray();
  throw new ArgumentError(`${message}, got ${String(value)}`, {
    op: message.slice(0, message.indexOf(':')),
    given: value,
  });
}

/**
 * Indices drawn with the weights of the last dim, which need not add up to 1; each at most once
 * unless `replacement` (false) is set.
 *
 * Shapes: `[..., n]` gives `[..., numSamples]`. Dtypes: any weights (computed in float32), int64
 * result. Gradient: none.
 *
 * @throws ArgumentError for a count below 1, or above n without replacement; and on the CPU, which
 * looks at the values (and blocks), for weights that are negative, not finite, all 0, or too few
 * above 0
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
      weights,
      (w) => w.ge(0).logicalAnd(w.isfinite()),
      'multinomial: expected weights of 0 or more',
    );
    requireOnCpu(
      weights.detach().sum(-1),
      (total) => total.gt(0),
      'multinomial: expected a positive sum of weights',
    );
    if (!replacement)
      requireOnCpu(
        weights.detach().gt(0).sum(-1),
        (count) => count.ge(numSamples),
        `multinomial: expected ${numSamples} weights above 0 or replacement`,
      );
    const drawOptions = generator ? { generator } : {};
    if (!replacement) {
      // The largest of exponential races: u^(1/w) ordered as log(u) / w.
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
  meta: ([{ shape, dtype, device }]) => [
    { shape, strides: null, dtype, device },
    { shape, strides: null, dtype: bool, device },
  ],
  lower: (command, [x], [y, kept], { index }) => {
    command.tensor(x);
    writeIndex(command, x.shape, index);
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
 * @throws ArgumentError unless 0 <= p <= 1, or for no tensor; DtypeError for whole numbers, of
 * which no share is kept
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

addMethod('bernoulli', methodOf(bernoulli));
addMethod('multinomial', methodOf(multinomial));
addMethod('dropout', methodOf(dropout));

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * Ones with the probability that each element gives, else zeros; the same as {@link bernoulli}.
     */
    bernoulli: MethodOf<typeof bernoulli>;
    /** Indices drawn with the weights of the last dim; the same as {@link multinomial}. */
    multinomial: MethodOf<typeof multinomial>;
    /**
     * Elements set to 0 with probability p, others scaled by 1 / (1 - p); the same as {@link
     * dropout}.
     */
    dropout: MethodOf<typeof dropout>;
  }
}
