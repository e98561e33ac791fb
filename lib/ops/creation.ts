/**
 * Tensors from memory and from other tensors: fromBlob, asTensor, logspace, newTensor; and
 * questions about them.
 */

import { type Device, device as deviceOf } from '../core/device.js';
import { type DType, float32, float64, getDefaultDtype } from '../core/dtype.js';
import { ArgumentError, ShapeError } from '../core/errors.js';
import { markLibraryGenerator } from '../core/library-generators.js';
import { checkNumber, checkSizesOf, kindOf, unexpected } from '../core/options.js';
import { resultType as promotedType } from '../core/promotion.js';
import { checkSizes, formatShape, numelOf, type Shape } from '../core/shape.js';
import { heldOf } from '../core/sharding.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import { Tensor } from '../core/tensor.js';
import { dtypeOfArray } from '../core/values.js';
import { valueAccess } from './construct.js';
import {
  empty,
  filledBeside,
  type NestedArray,
  newEmpty,
  type TensorOptions,
} from './factories.js';
import { fillValue as plainNumber } from './fill.js';
import { tensor } from './from-values.js';
import { addMethod } from './method.js';
import { operand, requireDtype, requireTensor, type TensorLike } from './operand.js';
import { finish } from './pinned.js';
import { linspace } from './ranges.js';
import { type SizedFactory, sizedMethod } from './sized.js';

/** The built-in `resizable` of a buffer, whatever property a program has defined on it. */
const resizable = Object.getOwnPropertyDescriptor(ArrayBuffer.prototype, 'resizable')?.get as (
  this: ArrayBuffer,
) => boolean;

/**
 * Why a tensor cannot use the memory of an array: it is shared, resizable or detached. Null if it
 * can.
 */
function unlendable({ buffer }: ArrayBufferView): string | null {
  if (!(buffer instanceof ArrayBuffer)) return 'is over a SharedArrayBuffer';
  if (Reflect.apply(resizable, buffer, [])) return 'is over a resizable ArrayBuffer';
  try {
    new Uint8Array(buffer);
    return null;
  } catch {
    return 'is over a detached ArrayBuffer, whose memory was transferred away';
  }
}

/**
 * A CPU tensor over the memory of a typed array, without a copy: changes are seen on both sides.
 * Once the array's buffer is transferred away, using the tensor throws FreedError. The buffer may
 * be transferred at any time: an op that reads the array copies up to 32 MiB of it at the call if
 * it cannot run at once, or else blocks, and an op that writes to it in place blocks. Shapes:
 * `size`, or a vector. Dtypes: the array's (Float32Array, Float64Array, BigInt64Array, Int32Array,
 * Int16Array, Int8Array, Uint8Array). Gradient: none, it is a leaf.
 *
 * @throws ArgumentError for another array type, bad sizes, and memory that may be resized, is
 * shared or gone; ShapeError if the sizes do not fit. In-place collectives on the tensor throw
 * KernelError, and so do in-place ops in `local` ranks while work is under way: use `clone()`
 * @see PyTorch `torch.from_numpy`, and `torch::from_blob` of its C++ library
 * @example const t = fromBlob(new Float32Array([1, 2, 3, 4]), [2, 2]);
 */
export const fromBlob = defineFunction(
  'fromBlob(data, /, size)',
  (data: ArrayBufferView, size: Shape | null = null): Tensor => {
    if (!ArrayBuffer.isView(data)) throw unexpected('fromBlob', 'data', 'a typed array', data);
    const known = data instanceof Float32Array ? float32 : dtypeOfArray(data);
    if (known === null)
      throw new ArgumentError(`fromBlob: ${kindOf(data)} has no matching dtype`, {
        op: 'fromBlob',
      });
    const reason = unlendable(data);
    if (reason !== null)
      throw new ArgumentError(
        `fromBlob: the ${data.constructor.name} ${reason}; copy it with tensor() while ` +
          'its memory is there',
        { op: 'fromBlob' },
      );
    const count = data.byteLength / known.itemsize;
    const shape = size ?? [count];
    checkSizes(shape, 'fromBlob');
    if (numelOf(shape) !== count)
      throw new ShapeError(
        `fromBlob: shape ${formatShape(shape)} does not hold ${count} elements`,
        { op: 'fromBlob', size: shape },
      );
    if (count === 0) return empty(shape, { dtype: known, device: 'cpu' });
    return valueAccess().adopt(data, [...shape], known);
  },
);

/**
 * A tensor of the data: a tensor itself if it has the dtype and device, the memory of a typed array
 * if it can be shared, else a copy. Shapes and dtypes as {@link tensor}, or `dtype`. Gradient: yes,
 * of a tensor.
 *
 * @throws ArgumentError, ShapeError, DeviceError, DtypeError as {@link tensor}
 * @see PyTorch `torch.as_tensor`
 */
export const asTensor = defineFunction(
  'asTensor(data, /, dtype, device)',
  (
    data: NestedArray | ArrayBufferView | Tensor,
    dtype: TensorOptions['dtype'] | null = null,
    device: TensorOptions['device'] | null = null,
  ): Tensor => {
    const target = { ...(dtype ? { dtype } : {}), ...(device ? { device } : {}) };
    if (data instanceof Tensor) return data.to(target);
    const shares =
      ArrayBuffer.isView(data) &&
      (data instanceof Float32Array || dtypeOfArray(data) !== null) &&
      unlendable(data) === null;
    return shares ? fromBlob(data).to(target) : tensor(data, target);
  },
);

/**
 * A tensor without dims: `[]`, of the default floating type, or bool for a boolean. Gradient: none,
 * it is a leaf.
 *
 * @throws ArgumentError, DeviceError, DtypeError, AutogradError for bad options; see {@link
 * TensorOptions}
 * @see PyTorch `torch.scalar_tensor`
 */
export const scalarTensor = defineFunction(
  'scalarTensor(value, /, *, dtype, device, requiresGrad, pinMemory)',
  (value: number | boolean, options: TensorOptions = {}): Tensor => {
    if (typeof value !== 'number' && typeof value !== 'boolean')
      throw unexpected('scalarTensor', 'value', 'a number or a boolean', value);
    return tensor(value, options);
  },
);

/**
 * `steps` values from `base ** start` to `base ** end`, both included, evenly spaced in their
 * logarithms; `base` is positive, 10 by default. Shapes: `[steps]`. Dtypes: any, the default
 * floating type unless given; computed in float64. Gradient: none, it is a leaf.
 *
 * @throws ArgumentError for a count that is negative or not an integer; else for bad options, see
 * {@link TensorOptions}
 * @see PyTorch `torch.logspace`
 */
export const logspace = defineFunction(
  'logspace(start, end, steps, base, *, dtype, device, requiresGrad, pinMemory)',
  (start: number, end: number, steps: number, base = 10, options: TensorOptions = {}): Tensor => {
    const { requiresGrad, pinMemory, dtype: given, ...rest } = options;
    const dtype = requireDtype(given, 'logspace') ?? getDefaultDtype();
    for (const [name, value] of Object.entries({ start, end, base }))
      checkNumber('logspace', name, value);
    checkSizesOf('logspace', { steps });
    const exponents = linspace(start, end, steps, { ...rest, dtype: float64 });
    return finish(exponents.newFull([], base).pow(exponents).to(dtype), {
      ...(requiresGrad ? { requiresGrad } : {}),
      ...(pinMemory ? { pinMemory } : {}),
    });
  },
);

/** Whether a value is a tensor. @see PyTorch `torch.is_tensor` */
export function isTensor(value: unknown): value is Tensor {
  return value instanceof Tensor;
}

/** Whether the elements are floating point numbers. @see PyTorch `torch.is_floating_point` */
export function isFloatingPoint(input: Tensor): boolean {
  requireTensor(input, 'isFloatingPoint');
  return input.dtype.isFloatingPoint;
}

/** Number of elements. @see PyTorch `torch.numel` */
export function numel(input: Tensor): number {
  requireTensor(input, 'numel');
  return input.numel();
}

/**
 * The dtype that two operands promote to: tensors with dims decide, those without dims and plain
 * numbers only by a higher category (bool, integer, floating).
 *
 * @throws ArgumentError for a value that is neither a tensor nor a number
 * @see PyTorch `torch.result_type`
 */
export function resultType(a: TensorLike, b: TensorLike): DType {
  const place: Device =
    a instanceof Tensor ? a.device : b instanceof Tensor ? b.device : deviceOf('cpu');
  return promotedType([operand(a, place, 'resultType'), operand(b, place, 'resultType')]);
}

addMethod('newTensor', function (data: NestedArray | ArrayBufferView, options: TensorOptions = {}) {
  const made = tensor(data, { dtype: this.dtype, device: this.device, ...options });
  return this.sharding === null ? made : this.sharding.replicated(made);
});
const newZeros = defineFunction(
  'newZeros(input, /, size, *, dtype, device, requiresGrad, pinMemory)',
  (input: Tensor, size: Shape, options: TensorOptions = {}): Tensor =>
    filledBeside('newZeros', input, size, 0, options),
);
addMethod('newZeros', sizedMethod<TensorOptions>(newZeros));
const newOnes = defineFunction(
  'newOnes(input, /, size, *, dtype, device, requiresGrad, pinMemory)',
  (input: Tensor, size: Shape, options: TensorOptions = {}): Tensor =>
    filledBeside('newOnes', input, size, 1, options),
);
addMethod('newOnes', sizedMethod<TensorOptions>(newOnes));
const newFull = defineFunction(
  'newFull(input, /, size, fillValue, *, dtype, device, requiresGrad, pinMemory)',
  (input: Tensor, size: Shape, fillValue: number, options: TensorOptions = {}): Tensor =>
    filledBeside('newFull', input, size, plainNumber(fillValue, 'newFull'), options),
);
addMethod('newFull', methodOf(newFull));
const emptyOfThis = defineFunction(
  'newEmpty(input, /, size, *, dtype, device, requiresGrad, pinMemory)',
  (input: Tensor, size: Shape, options: TensorOptions = {}): Tensor =>
    newEmpty(input, size, options),
);
addMethod('newEmpty', sizedMethod<TensorOptions>(emptyOfThis));
addMethod('isSigned', function () {
  return !this.dtype.name.startsWith('u') && this.dtype.category > 0;
});
addMethod('isSetTo', function (other: Tensor) {
  requireTensor(other, 'isSetTo', 'other');
  const [own, given] = [heldOf(this), heldOf(other)];
  return (
    own.storage === given.storage &&
    own.storageOffset === given.storageOffset &&
    this.sharding?.spec === other.sharding?.spec &&
    formatShape([...own.sizes, ...own.strides]) === formatShape([...given.sizes, ...given.strides])
  );
});
addMethod(Symbol.iterator, rowsOf);
function* rowsOf(this: Tensor): Generator<Tensor> {
  if (this.ndim === 0)
    throw new ShapeError(
      'a tensor without dims cannot be iterated over; use item(). A test that compares tensors needs ' +
        'assertClose or tensorEquality of shardwise/testing.',
      { shape: this.sizes },
    );
  for (let i = 0; i < (this.sizes[0] as number); i++) yield this.select(0, i);
}
markLibraryGenerator(rowsOf);

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * A tensor of this dtype and on this device, unless options say otherwise, from values
     * (copied). Shapes and errors as {@link tensor}.
     */
    newTensor(data: NestedArray | ArrayBufferView, options?: TensorOptions): Tensor;
    /**
     * Zeros of this dtype and on this device, unless options say otherwise. Shapes and errors as
     * {@link zeros}.
     */
    newZeros: SizedFactory<TensorOptions>;
    /**
     * Ones of this dtype and on this device, unless options say otherwise. Shapes and errors as
     * {@link ones}.
     */
    newOnes: SizedFactory<TensorOptions>;
    /**
     * One value, of this dtype and on this device, unless options say otherwise. Shapes and errors
     * as {@link full}.
     */
    newFull: MethodOf<typeof newFull>;
    /**
     * A tensor of this dtype and on this device, unless options say otherwise, whose values are
     * undefined. Errors as {@link empty}.
     */
    newEmpty: SizedFactory<TensorOptions>;
    /**
     * Whether the dtype has negative numbers: all but uint8 and bool. @see PyTorch
     * `torch.Tensor.is_signed`
     */
    isSigned(): boolean;
    /**
     * Whether both are the same window on the same memory: storage, offset, shape and strides. @see
     * PyTorch `torch.Tensor.is_set_to`
     */
    isSetTo(other: Tensor): boolean;
    /**
     * The slices of dim 0, `[n, ...]` to n times `[...]`, as views. Gradient: yes. @throws
     * ShapeError for a tensor without dims
     */
    [Symbol.iterator](): Generator<Tensor>;
  }
}
