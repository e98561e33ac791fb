/** Tensors from nothing or from JavaScript values. Random ones are in random.ts. */

import { type Device, type DeviceName, device as deviceOf, getDefaultDevice } from '../core/device.js';
import { dispatchOne } from '../core/dispatch.js';
import { bool, type DType, type DTypeLike, float32, getDefaultDtype, int64 } from '../core/dtype.js';
import { ArgumentError, ShapeError } from '../core/errors.js';
import { defineOp, type Op } from '../core/op.js';
import { checkNumber, kindOf, optionsOf } from '../core/options.js';
import { checkSizes, isNonOverlappingAndDense, type Shape } from '../core/shape.js';
import type { ShardingRule } from '../core/sharding-rule.js';
import { Tensor } from '../core/tensor.js';
import { dtypeOfArray, encodeValues } from '../core/values.js';
import { makeFromValues } from './construct.js';
import { fillValue, fillWords } from './copy.js';
import { addMethod } from './method.js';
import { describe, requireDtype, requireTensor } from './operand.js';
import { finish } from './pinned.js';
import { installSampleMaker } from './samples.js';
import { arangeRule, factoryRule, linspaceRule } from './sharding/making.js';

/**
 * Options of every factory. Bad ones throw: DtypeError for a dtype that is none, DeviceError for a device that is none, or (as `pinMemory`) not
 * there, AutogradError for `requiresGrad` of integers or bools, and ArgumentError for an option that does not exist.
 */
export interface TensorOptions {
  /** Element type; by default the current floating type, or what the values suggest. */
  dtype?: DTypeLike;
  /** Where the memory is; by default the current device. */
  device?: DeviceName | Device;
  /** Whether to put it in pinned host memory; for CPU tensors, where CUDA can be used. False by default. */
  pinMemory?: boolean;
  /** Whether to record operations on it; for floating types. False by default. */
  requiresGrad?: boolean;
}

/** Numbers nested to any depth. */
export type NestedArray = number | bigint | boolean | readonly NestedArray[];

interface FullParams {
  shape: Shape;
  strides: Shape | null;
  dtype: DType;
  device: Device;
  value: number | bigint;
}

const fullOp: Op<FullParams> = defineOp<FullParams>({
  name: 'full',
  doc: 'A tensor with every element one value.',
  sharding: factoryRule(),
  kernel: 'fill',
  meta: (_inputs, { shape, strides, dtype, device }) => [{ shape, strides, dtype, device }],
  kernelParams: ['valueHigh', 'valueLow'],
  lower: (command, _inputs, [output], { value, dtype }) => {
    const y = output as Tensor;
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

function placed(options: TensorOptions, op: string): Device {
  optionsOf(op, options, TENSOR_OPTIONS);
  return options.device === undefined ? getDefaultDevice() : deviceOf(options.device);
}

/**
 * A tensor with every element `value`. Shapes: `size`. Dtypes: bool for a boolean, int64 for a bigint, else the default floating type, unless
 * given. Gradient: none, it is a leaf.
 *
 * @throws ArgumentError for bad sizes, what is no number, and a value that an integer dtype cannot hold; else for bad options, see {@link TensorOptions}
 * @see PyTorch `torch.full`
 */
export function full(size: Shape, value: number | bigint | boolean, options: TensorOptions = {}): Tensor {
  return filled('full', size, fillValue(value, 'full'), options, typeof value === 'boolean' ? bool : typeof value === 'bigint' ? int64 : getDefaultDtype());
}

function filled(name: string, size: Shape, value: number | bigint, options: TensorOptions, otherwise = getDefaultDtype()): Tensor {
  checkSizes(size, name);
  const device = placed(options, name);
  return finish(dispatchOne(fullOp, [], { shape: [...size], strides: null, dtype: requireDtype(options.dtype, name) ?? otherwise, device, value }), options);
}

/**
 * Zeros. Shapes: `size`. Dtypes: the default floating type unless given. Gradient: none, it is a leaf.
 *
 * @throws ArgumentError for bad sizes; else for bad options, see {@link TensorOptions}
 * @see PyTorch `torch.zeros`
 */
export function zeros(size: Shape, options: TensorOptions = {}): Tensor {
  return filled('zeros', size, 0, options);
}

/**
 * Ones. Shapes: `size`. Dtypes: the default floating type unless given. Gradient: none, it is a leaf.
 *
 * @throws ArgumentError for bad sizes; else for bad options, see {@link TensorOptions}
 * @see PyTorch `torch.ones`
 */
export function ones(size: Shape, options: TensorOptions = {}): Tensor {
  return filled('ones', size, 1, options);
}

function fullLike(input: Tensor, value: number | bigint, options: TensorOptions, op: string): Tensor {
  requireTensor(input, op);
  optionsOf(op, options, TENSOR_OPTIONS);
  const strides = isNonOverlappingAndDense(input.shape, input.strides) ? input.strides : null;
  const device = options.device === undefined ? input.device : deviceOf(options.device);
  const dtype = requireDtype(options.dtype, op) ?? input.dtype;
  return finish(dispatchOne(fullOp, [], { shape: input.shape, strides, dtype, device, value }, emptyBeside(input, input.shape, dtype)), options);
}

/** Memory held by the ranks that hold `input`, to be filled; null where it is a plain tensor. @internal */
export function emptyBeside(input: Tensor, shape: Shape, dtype: DType): Tensor | null {
  return input.sharding === null ? null : input.sharding.empty(shape, dtype);
}

/**
 * Zeros in the shape, dtype, device and dense layout of `input`, unless options say otherwise. Gradient: none, it is a leaf.
 *
 * @throws ArgumentError unless `input` is a tensor; else for bad options, see {@link TensorOptions}
 * @see PyTorch `torch.zeros_like`
 */
export const zerosLike = (input: Tensor, options: TensorOptions = {}): Tensor => fullLike(input, 0, options, 'zerosLike');
/** Ones, else as {@link zerosLike}. @see PyTorch `torch.ones_like` */
export const onesLike = (input: Tensor, options: TensorOptions = {}): Tensor => fullLike(input, 1, options, 'onesLike');
/** One value, else as {@link zerosLike}. @throws ArgumentError also for a value that an integer dtype cannot hold @see PyTorch `torch.full_like` */
export function fullLikeOf(input: Tensor, value: number | bigint, options: TensorOptions = {}): Tensor {
  return fullLike(input, fillValue(value, 'fullLike'), options, 'fullLike');
}

interface EmptyParams {
  shape: Shape;
  dtype: DType;
  device: Device;
  pinned?: boolean;
}

/** Memory with no defined content; it costs an allocation and no kernel. */
const emptyOp: Op<EmptyParams> = defineOp<EmptyParams>({
  name: 'empty',
  doc: 'A tensor whose values are undefined.',
  sharding: factoryRule(),
  traits: ['uninitialized'],
  kernel: null,
  meta: (_inputs, { shape, dtype, device }) => [{ shape, strides: null, dtype, device }],
  vjp: 'not-differentiable',
  samples: () => [],
});

/**
 * A tensor whose values are undefined until written: no kernel runs. Shapes: `size`. Dtypes: the default floating type unless given.
 * Gradient: none, it is a leaf.
 *
 * @throws ArgumentError for bad sizes; else for bad options, see {@link TensorOptions}
 * @see PyTorch `torch.empty`
 */
export function empty(size: Shape, options: TensorOptions = {}): Tensor {
  checkSizes(size, 'empty');
  const device = placed(options, 'empty');
  const pinned = options.pinMemory === true && device.type === 'cpu';
  return finish(dispatchOne(emptyOp, [], { shape: [...size], dtype: requireDtype(options.dtype, 'empty') ?? getDefaultDtype(), device, ...(pinned ? { pinned } : {}) }), options);
}

/**
 * A row-major tensor in the shape, dtype and device of `input`, unless options say otherwise, whose values are undefined. Errors as {@link empty}.
 *
 * @see PyTorch `torch.empty_like`
 */
export function emptyLike(input: Tensor, options: TensorOptions = {}): Tensor {
  requireTensor(input, 'emptyLike');
  optionsOf('emptyLike', options, TENSOR_OPTIONS);
  return newEmpty(input, input.shape, options);
}

/** Memory of any shape, else as `input`. @internal */
export function newEmpty(input: Tensor, size: Shape, options: TensorOptions): Tensor {
  if (input.sharding === null) return empty(size, { dtype: input.dtype, device: input.device, ...options });
  checkSizes(size, 'newEmpty');
  placed(options, 'newEmpty');
  return finish(input.sharding.empty(size, requireDtype(options.dtype, 'newEmpty') ?? input.dtype), options);
}

interface RangeParams {
  size: number;
  start: number;
  step: number;
  dtype: DType;
  device: Device;
}

function rangeOp(name: string, kernel: string, second: string, doc: string, sharding: ShardingRule<RangeParams>): Op<RangeParams> {
  return defineOp<RangeParams>({
    name,
    sharding,
    doc,
    kernel,
    kernelParams: ['start', second],
    meta: (_inputs, { size, dtype, device }) => [{ shape: [size], strides: null, dtype, device }],
    lower: (command, _inputs, [output], { start, step }) => {
      command.output(output as Tensor);
      command.param(start);
      command.param(step);
    },
    vjp: 'not-differentiable',
    samples: () => [],
  });
}
const arangeOp = rangeOp('arange', 'arange', 'step', 'start, start + step, ... below end.', arangeRule());
const linspaceOp = rangeOp('linspace', 'linspace', 'end', 'Evenly spaced values, both ends included.', linspaceRule());

/**
 * `start`, `start + step`, ... below `end` (above it for a negative step); with one argument, 0 to `end`. Shapes: `[ceil((end - start) / step)]`.
 * Dtypes: int64 if all arguments are integers, else the default floating type, unless given; for integers start and step are cut off to integers, for int64
 * end, too. Gradient: none, it is a leaf.
 *
 * @throws ArgumentError for a step of 0 (also if cut off) or one that leads away from `end`; else for bad options, see {@link TensorOptions}
 * @see PyTorch `torch.arange`
 */
export function arange(end: number, options?: TensorOptions): Tensor;
/** `start`, `start + 1`, ... below `end`. */
export function arange(start: number, end: number, options?: TensorOptions): Tensor;
/** `start`, `start + step`, ... below `end`, or above it. */
export function arange(start: number, end: number, step: number, options?: TensorOptions): Tensor;
export function arange(...args: (number | TensorOptions | undefined)[]): Tensor {
  const numbers = args.filter((a): a is number => typeof a === 'number');
  const options = (args.find((a) => typeof a === 'object') ?? {}) as TensorOptions;
  const [start, end, step] = numbers.length === 1 ? [0, numbers[0] as number, 1] : [numbers[0] as number, numbers[1] as number, numbers[2] ?? 1];
  const device = placed(options, 'arange');
  const dtype = requireDtype(options.dtype, 'arange') ?? (numbers.every(Number.isInteger) ? int64 : getDefaultDtype());
  // Integers step from what is left of the start by what is left of the step, and int64 counts by these, too: as PyTorch does.
  const [first, last, by] = dtype.isFloatingPoint ? [start, end, step] : [Math.trunc(start), Math.trunc(end), Math.trunc(step)];
  const size = Math.ceil(dtype === int64 && by !== 0 ? (last - first) / by : (end - start) / step) + 0; // never -0
  if (!Number.isSafeInteger(size) || step === 0 || (step > 0 ? last < first : last > first))
    throw new ArgumentError(`arange: cannot step from ${start} to ${end} by ${step}`, { op: 'arange', start, end, step });
  if (by === 0)
    throw new ArgumentError(`arange: a step of ${step} is 0 in ${dtype.name}. Pass a floating point dtype, or convert the result with .to(${dtype.name}).`, {
      op: 'arange',
      step,
      dtype: dtype.name,
    });
  return finish(dispatchOne(arangeOp, [], { size, start: first, step: by, dtype, device }), options);
}

/**
 * `steps` evenly spaced values from `start` to `end`, both included; one step gives `start`. Shapes: `[steps]`. Dtypes: the default floating type
 * unless given; integers are cut off. Gradient: none, it is a leaf.
 *
 * @throws ArgumentError for a count that is no integer or negative; else for bad options, see {@link TensorOptions}
 * @see PyTorch `torch.linspace`
 */
export function linspace(start: number, end: number, steps: number, options: TensorOptions = {}): Tensor {
  checkSizes([steps], 'linspace');
  for (const [name, value] of Object.entries({ start, end })) checkNumber('linspace', name, value);
  const dtype = requireDtype(optionsOf('linspace', options).dtype, 'linspace') ?? getDefaultDtype();
  return finish(dispatchOne(linspaceOp, [], { size: steps, start, step: end, dtype, device: placed(options, 'linspace') }), options);
}

/**
 * Ones on the diagonal, zeros elsewhere. Shapes: `[n, n]`, or with `m` `[n, m]`. Dtypes: the default floating type unless given. Gradient: none.
 *
 * @throws ArgumentError for bad sizes; else for bad options, see {@link TensorOptions}
 * @see PyTorch `torch.eye`
 */
export function eye(n: number, m: number | TensorOptions = n, options: TensorOptions = {}): Tensor {
  const columns = typeof m === 'number' ? m : n;
  checkSizes([n, columns], 'eye');
  const given = typeof m === 'number' ? options : m;
  optionsOf('eye', given, TENSOR_OPTIONS);
  const matrix = zeros([n, columns], { ...given, requiresGrad: false });
  matrix.diagonal().fill_(1);
  return finish(matrix, given);
}

/**
 * A tensor from a number, nested arrays, a typed array, or another tensor; always a copy, and a leaf. Shapes: `[]` for a number, one dim for each
 * level of arrays, a vector for a typed array, the tensor's own. Dtypes: `dtype`, else a typed array's or tensor's own, the default floating
 * type if there are numbers, int64 for bigints, bool for booleans. Gradient: none.
 *
 * @throws ShapeError for ragged arrays; ArgumentError for what is no number, for numbers that an integer dtype cannot hold, and array types
 * without a dtype; else for bad options, see {@link TensorOptions}
 * @see PyTorch `torch.tensor`
 * @example tensor([[1, 2], [3, 4]])
 */
export function tensor(data: NestedArray | ArrayBufferView | Tensor, options: TensorOptions = {}): Tensor {
  optionsOf('tensor', options, TENSOR_OPTIONS);
  if (data instanceof Tensor)
    return finish(
      data
        .detach()
        .clone()
        .to({ dtype: options.dtype ?? data.dtype, device: options.device ?? data.device }),
      options,
    );
  if (ArrayBuffer.isView(data)) return fromTypedArray(data, options);
  const shape = nestedShape(data);
  const flat: (number | bigint | boolean)[] = [];
  flatten(data, shape, 0, flat);
  const device = placed(options, 'tensor');
  const dtype = requireDtype(options.dtype, 'tensor') ?? inferDtype(flat);
  return finish(makeFromValues(encodeValues(flat, dtype), shape, dtype, device), options);
}

function fromTypedArray(data: ArrayBufferView, options: TensorOptions): Tensor {
  const own = data instanceof Float32Array ? float32 : dtypeOfArray(data);
  if (own === null) throw new ArgumentError(`tensor: ${kindOf(data)} has no matching dtype; convert it to Int32Array, BigInt64Array or Float32Array`, { op: 'tensor' });
  const device = placed(options, 'tensor');
  const dtype = requireDtype(options.dtype, 'tensor') ?? own;
  const values = data as Float32Array;
  const raw = dtype === own ? data : encodeValues(values, dtype);
  return finish(makeFromValues(raw, [values.length], dtype, device), options);
}

function nestedShape(data: NestedArray): number[] {
  const shape: number[] = [];
  let level: NestedArray | undefined = data;
  while (Array.isArray(level)) {
    shape.push(level.length);
    level = level[0];
  }
  checkSizes(shape, 'tensor');
  return shape;
}

function flatten(data: NestedArray, shape: Shape, depth: number, out: (number | bigint | boolean)[]): void {
  if (depth === shape.length) {
    if (typeof data !== 'number' && typeof data !== 'bigint' && typeof data !== 'boolean') {
      if (Array.isArray(data)) throw ragged(shape, depth, data.length);
      throw new ArgumentError(`tensor: expected numbers, got ${describe(data)}`, { op: 'tensor' });
    }
    out.push(data);
    return;
  }
  if (!Array.isArray(data) || data.length !== shape[depth]) throw ragged(shape, depth, Array.isArray(data) ? data.length : null);
  for (const item of data) flatten(item, shape, depth + 1, out);
}

function ragged(shape: Shape, depth: number, found: number | null): ShapeError {
  const expected = shape[depth] === undefined ? 'a number' : `an array of ${shape[depth]}`;
  const given = found === null ? 'a number' : `an array of ${found}`;
  return new ShapeError(`tensor: nested arrays are ragged: expected ${expected} at depth ${depth}, as in the first one, got ${given}`, { op: 'tensor', depth, expected, given });
}

function inferDtype(values: readonly (number | bigint | boolean)[]): DType {
  if (values.length === 0) return getDefaultDtype();
  if (values.every((v) => typeof v === 'boolean')) return bool;
  if (values.some((v) => typeof v === 'number')) return getDefaultDtype();
  return int64;
}

function filledBeside(name: string, input: Tensor, size: Shape, value: number | bigint, options: TensorOptions): Tensor {
  checkSizes(size, name);
  const given = { dtype: input.dtype, device: input.device, ...options };
  const device = placed(given, name);
  const dtype = requireDtype(given.dtype, name) ?? input.dtype;
  return finish(dispatchOne(fullOp, [], { shape: [...size], strides: null, dtype, device, value }, emptyBeside(input, size, dtype)), given);
}

addMethod('zerosLike', function () {
  return zerosLike(this);
});
addMethod('newZeros', function (size: Shape, options: TensorOptions = {}) {
  return filledBeside('newZeros', this, size, 0, options);
});
addMethod('newOnes', function (size: Shape, options: TensorOptions = {}) {
  return filledBeside('newOnes', this, size, 1, options);
});
addMethod('newFull', function (size: Shape, value: number, options: TensorOptions = {}) {
  return filledBeside('newFull', this, size, fillValue(value, 'newFull'), options);
});

installSampleMaker((data, shape, dtype) => makeFromValues(encodeValues(data, dtype), shape, dtype, getDefaultDevice()));

export { fullLikeOf as fullLike };

declare module '../core/tensor.js' {
  interface Tensor {
    /** Zeros in this shape, dtype and device. The same as {@link zerosLike}. */
    zerosLike(): Tensor;
    /** Zeros of this dtype and on this device, unless options say otherwise. Shapes and errors as {@link zeros}. */
    newZeros(size: Shape, options?: TensorOptions): Tensor;
    /** Ones of this dtype and on this device, unless options say otherwise. Shapes and errors as {@link ones}. */
    newOnes(size: Shape, options?: TensorOptions): Tensor;
    /** One value, of this dtype and on this device, unless options say otherwise. Shapes and errors as {@link full}. */
    newFull(size: Shape, value: number, options?: TensorOptions): Tensor;
  }
}
