/**
 * Tensors of one value: full, zeros, ones, eye and their `…Like` twins. random.ts has the random
 * ones.
 */

import {
  type Device,
  type DeviceName,
  device as deviceOf,
  getDefaultDevice,
} from '../core/device.js';
import { dispatchOne } from '../core/dispatch.js';
import { bool, type DType, type DTypeLike, getDefaultDtype, int64 } from '../core/dtype.js';
import { defineOp, type Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { optionsOf } from '../core/options.js';
import { checkSizes, type Shape, stridesLike } from '../core/shape.js';
import { defineFunction } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { fillWords, fillValue as plainNumber, wordsOfValue } from './fill.js';
import { addMethod } from './method.js';
import { requireDtype, requireTensor } from './operand.js';
import { finish } from './pinned.js';
import { factoryRule } from './sharding/factories-and-random.js';
import { sizedFactory } from './sized.js';

/**
 * Options of every factory. Bad options throw: DtypeError for an unknown dtype, DeviceError for an
 * unknown or unavailable device and for `pinMemory` without CUDA, AutogradError for `requiresGrad`
 * of integers or bools, and ArgumentError for an unknown option.
 */
export interface TensorOptions {
  /** Element type; by default the default floating type, or the type of the values. */
  dtype?: DTypeLike;
  /** The device of the memory; the current device by default. */
  device?: DeviceName | Device;
  /**
   * Whether to allocate pinned host memory; for CPU tensors, if CUDA can be used. False by default.
   */
  pinMemory?: boolean;
  /** Whether to record operations on the tensor; for floating types. False by default. */
  requiresGrad?: boolean;
}

/** Numbers, and tensors without dims, nested to any depth. */
export type NestedArray = number | bigint | boolean | Tensor | readonly NestedArray[];

const fullParams = {
  ...wordsOfValue,
  shape: param.value<Shape>(),
  strides: param.value<Shape | null>(),
  dtype: param.value<DType>(),
  device: param.value<Device>(),
  value: param.value<number | bigint>(),
};
type FullParams = ParamsOf<typeof fullParams>;

const fullOp: Op<FullParams> = defineOp({
  name: 'full',
  inputs: [],
  outputs: ['y'],
  operands: '() -> (y: [...])',
  params: fullParams,
  doc: 'A tensor with every element one value.',
  sharding: factoryRule<FullParams>(),
  kernel: 'fill',
  meta: (_inputs, { shape, strides, dtype, device }) => [{ shape, strides, dtype, device }],
  lower: (command, _inputs, [y], { value, dtype }) => {
    command.outputView(y, [y.numel()], [1]);
    const [high, low] = fillWords(value, dtype, 'full');
    command.param(high);
    command.param(low);
  },
  vjp: 'not-differentiable',
  samples: () => [],
});

/** Names of {@link TensorOptions}. */
export const TENSOR_OPTIONS = 'dtype device requiresGrad pinMemory';

/** Checks the options and returns the device that they name. @internal */
export function placed(options: TensorOptions, op: string): Device {
  optionsOf(op, options, TENSOR_OPTIONS);
  return options.device === undefined ? getDefaultDevice() : deviceOf(options.device);
}

/**
 * A tensor with every element `fillValue`. Shapes: `size`. Dtypes: bool for a boolean, int64 for a
 * bigint, else the default floating type, unless given. Gradient: none, it is a leaf.
 *
 * @throws ArgumentError for bad sizes, for a value that is not a number, and one that an integer
 * dtype cannot hold; else for bad options, see {@link TensorOptions}
 * @see PyTorch `torch.full`
 * @example
 * full([2, 2], 7); // [[7, 7], [7, 7]]
 */
export const full = defineFunction(
  'full(size, fillValue, *, dtype, device, requiresGrad, pinMemory)',
  (size: Shape, fillValue: number | bigint | boolean, options: TensorOptions = {}): Tensor => {
    return filled(
      'full',
      size,
      plainNumber(fillValue, 'full'),
      options,
      typeof fillValue === 'boolean'
        ? bool
        : typeof fillValue === 'bigint'
          ? int64
          : getDefaultDtype(),
    );
  },
);

function filled(
  name: string,
  size: Shape,
  value: number | bigint,
  options: TensorOptions,
  otherwise = getDefaultDtype(),
): Tensor {
  checkSizes(size, name);
  const device = placed(options, name);
  return finish(
    dispatchOne(fullOp, [], {
      shape: [...size],
      strides: null,
      dtype: requireDtype(options.dtype, name) ?? otherwise,
      device,
      value,
    }),
    options,
  );
}

/**
 * Zeros. Shapes: `size`. Dtypes: the default floating type unless given. Gradient: none, it is a
 * leaf.
 *
 * @throws ArgumentError for bad sizes; else for bad options, see {@link TensorOptions}
 * @see PyTorch `torch.zeros`
 * @example
 * zeros([3]); // [0, 0, 0]
 * zeros([2, 2], { dtype: int64 }).dtype; // int64
 */
export const zeros = sizedFactory<TensorOptions>(
  defineFunction(
    'zeros(size, *, dtype, device, requiresGrad, pinMemory)',
    (size: Shape, options: TensorOptions = {}): Tensor => {
      return filled('zeros', size, 0, options);
    },
  ),
);

/**
 * Ones. Shapes: `size`. Dtypes: the default floating type unless given. Gradient: none, it is a
 * leaf.
 *
 * @throws ArgumentError for bad sizes; else for bad options, see {@link TensorOptions}
 * @see PyTorch `torch.ones`
 * @example
 * ones([2, 3]); // [[1, 1, 1], [1, 1, 1]]
 */
export const ones = sizedFactory<TensorOptions>(
  defineFunction(
    'ones(size, *, dtype, device, requiresGrad, pinMemory)',
    (size: Shape, options: TensorOptions = {}): Tensor => {
      return filled('ones', size, 1, options);
    },
  ),
);

function fullLike(
  input: Tensor,
  value: number | bigint,
  options: TensorOptions,
  op: string,
): Tensor {
  requireTensor(input, op);
  optionsOf(op, options, TENSOR_OPTIONS);
  const strides = stridesLike(input.sizes, input.strides);
  const device = options.device === undefined ? input.device : deviceOf(options.device);
  const dtype = requireDtype(options.dtype, op) ?? input.dtype;
  return finish(
    dispatchOne(
      fullOp,
      [],
      { shape: input.sizes, strides, dtype, device, value },
      emptyBeside(input, input.sizes, dtype),
    ),
    options,
  );
}

/**
 * Allocates a distributed tensor like `input`, to be filled; null if `input` is a plain tensor.
 * @internal
 */
export function emptyBeside(input: Tensor, shape: Shape, dtype: DType): Tensor | null {
  return input.sharding === null ? null : input.sharding.empty(shape, dtype);
}

/**
 * Zeros in the shape, dtype, device and layout of `input`, as of {@link emptyLike}, unless options
 * say otherwise.
 * Gradient: none, it is a leaf.
 *
 * @throws ArgumentError unless `input` is a tensor; else for bad options, see {@link TensorOptions}
 * @see PyTorch `torch.zeros_like`
 */
export const zerosLike = defineFunction(
  'zerosLike(input, /, *, dtype, device, requiresGrad, pinMemory)',
  (input: Tensor, options: TensorOptions = {}): Tensor => fullLike(input, 0, options, 'zerosLike'),
);
/** Ones, else as {@link zerosLike}. @see PyTorch `torch.ones_like` */
export const onesLike = defineFunction(
  'onesLike(input, /, *, dtype, device, requiresGrad, pinMemory)',
  (input: Tensor, options: TensorOptions = {}): Tensor => fullLike(input, 1, options, 'onesLike'),
);
/**
 * One value, else as {@link zerosLike}. @throws ArgumentError also for a value that an integer
 * dtype cannot hold @see PyTorch `torch.full_like`
 */
const fullLikeOf = defineFunction(
  'fullLike(input, /, fillValue, *, dtype, device, requiresGrad, pinMemory)',
  (input: Tensor, fillValue: number | bigint, options: TensorOptions = {}): Tensor =>
    fullLike(input, plainNumber(fillValue, 'fullLike'), options, 'fullLike'),
);

const emptyParams = {
  shape: param.value<Shape>(),
  /** Row-major if not given. */
  strides: param.optional<Shape>(),
  dtype: param.value<DType>(),
  device: param.value<Device>(),
  pinned: param.optional<boolean>(),
};
type EmptyParams = ParamsOf<typeof emptyParams>;

/** Allocates without running a kernel. */
const emptyOp: Op<EmptyParams> = defineOp({
  name: 'empty',
  inputs: [],
  outputs: ['y'],
  params: emptyParams,
  doc: 'A tensor whose values are undefined.',
  sharding: factoryRule<EmptyParams>(),
  traits: ['uninitialized'],
  kernel: null,
  meta: (_inputs, { shape, strides = null, dtype, device }) => [{ shape, strides, dtype, device }],
  move: (_inputs, { shape, strides = null, dtype, device, pinned }, memory) =>
    memory.allocate('empty', { shape, strides, dtype, device }, pinned),
  vjp: 'not-differentiable',
  samples: () => [],
});

/**
 * A tensor whose values are undefined until written: no kernel runs. Shapes: `size`. Dtypes: the
 * default floating type unless given. Gradient: none, it is a leaf.
 *
 * @throws ArgumentError for bad sizes; else for bad options, see {@link TensorOptions}
 * @see PyTorch `torch.empty`
 */
export const empty = sizedFactory<TensorOptions>(
  defineFunction(
    'empty(size, *, dtype, device, requiresGrad, pinMemory)',
    (size: Shape, options: TensorOptions = {}): Tensor => {
      checkSizes(size, 'empty');
      return emptyOf('empty', size, options);
    },
  ),
);

/** Memory for checked sizes, row-major unless strides are given. */
function emptyOf(op: string, size: Shape, options: TensorOptions, strides?: Shape): Tensor {
  const device = placed(options, op);
  const pinned = options.pinMemory === true && device.type === 'cpu';
  return finish(
    dispatchOne(emptyOp, [], {
      shape: [...size],
      dtype: requireDtype(options.dtype, op) ?? getDefaultDtype(),
      device,
      ...(pinned ? { pinned } : {}),
      ...(strides === undefined ? {} : { strides }),
    }),
    options,
  );
}

/**
 * A tensor in the shape, dtype, device and layout of `input`, unless options say otherwise, whose
 * values are undefined; of an input with gaps or overlaps, dense with the dims in the same order in
 * memory. Distributed tensors are row-major. Errors as {@link empty}.
 *
 * @see PyTorch `torch.empty_like`
 */
export const emptyLike = defineFunction(
  'emptyLike(input, /, *, dtype, device, requiresGrad, pinMemory)',
  (input: Tensor, options: TensorOptions = {}): Tensor => {
    requireTensor(input, 'emptyLike');
    optionsOf('emptyLike', options, TENSOR_OPTIONS);
    const { sizes: shape, strides, dtype, device } = input;
    if (input.sharding !== null) return newEmpty(input, shape, options);
    return emptyOf('emptyLike', shape, { dtype, device, ...options }, stridesLike(shape, strides));
  },
);

/** An uninitialized tensor of any shape with the dtype and device of `input`. @internal */
export function newEmpty(input: Tensor, size: Shape, options: TensorOptions): Tensor {
  if (input.sharding === null)
    return empty(size, { dtype: input.dtype, device: input.device, ...options });
  checkSizes(size, 'newEmpty');
  placed(options, 'newEmpty');
  return finish(
    input.sharding.empty(size, requireDtype(options.dtype, 'newEmpty') ?? input.dtype),
    options,
  );
}

/**
 * Ones on the diagonal, zeros elsewhere. Shapes: `[n, n]`, or with `m` `[n, m]`. Dtypes: the
 * default floating type unless given. Gradient: none.
 *
 * @throws ArgumentError for bad sizes; else for bad options, see {@link TensorOptions}
 * @see PyTorch `torch.eye`
 */
export const eye = defineFunction(
  'eye(n, m, *, dtype, device, requiresGrad, pinMemory)',
  (n: number, m: number | null = null, options: TensorOptions = {}): Tensor => {
    const columns = m ?? n;
    checkSizes([n, columns], 'eye');
    const matrix = zeros([n, columns], { ...options, requiresGrad: false });
    matrix.diagonal().fill_(1);
    return finish(matrix, options);
  },
);

/** One value in the dtype and on the device of `input`, unless options say otherwise. @internal */
export function filledBeside(
  name: string,
  input: Tensor,
  size: Shape,
  value: number | bigint,
  options: TensorOptions,
): Tensor {
  checkSizes(size, name);
  const given = { dtype: input.dtype, device: input.device, ...options };
  const device = placed(given, name);
  const dtype = requireDtype(given.dtype, name) ?? input.dtype;
  return finish(
    dispatchOne(
      fullOp,
      [],
      { shape: [...size], strides: null, dtype, device, value },
      emptyBeside(input, size, dtype),
    ),
    given,
  );
}

addMethod('zerosLike', function () {
  return zerosLike(this);
});

export { fullLikeOf as fullLike };

declare module '../core/tensor.js' {
  interface Tensor {
    /** Zeros in this shape, dtype and device. The same as {@link zerosLike}. */
    zerosLike(): Tensor;
  }
}
