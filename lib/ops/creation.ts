/** Tensors from memory, from other tensors and over ranges of exponents: fromBlob, asTensor, logspace, newTensor, and questions about them. */

import { type Device, device as deviceOf } from '../core/device.js';
import type { DType } from '../core/dtype.js';
import { float32 } from '../core/dtype.js';
import { ArgumentError, ShapeError } from '../core/errors.js';
import { checkNumber, checkSizesOf, optionsOf, unexpected } from '../core/options.js';
import { resultType as promotedType } from '../core/promotion.js';
import { checkSizes, formatShape, numelOf, type Shape } from '../core/shape.js';
import { Tensor } from '../core/tensor.js';
import { dtypeOfArray } from '../core/values.js';
import { valueAccess } from './construct.js';
import { empty, linspace, type NestedArray, type TensorOptions, tensor } from './factories.js';
import { addMethod } from './method.js';
import { operand, requireTensor, type TensorLike } from './operand.js';
import { finish } from './pinned.js';

/** Why the memory of an array cannot be shown by a tensor: it may go while the tensor lives, or is gone. */
function unlendable({ buffer }: ArrayBufferView): string | null {
  if (!(buffer instanceof ArrayBuffer)) return 'is over a SharedArrayBuffer';
  if ((buffer as { resizable?: boolean }).resizable === true) return 'is over a resizable ArrayBuffer';
  try {
    new Uint8Array(buffer);
    return null;
  } catch {
    return 'is over a detached ArrayBuffer, whose memory was transferred away';
  }
}

/**
 * A CPU tensor over the memory of a typed array, without a copy: changes are seen on both sides. Once the array's buffer is transferred
 * away, using the tensor throws FreedError; do not transfer it while work on the tensor is pending. Without `size`, a vector.
 *
 * @throws ArgumentError for an array type without a dtype, and memory that may be resized, is shared or gone. @throws ShapeError if the sizes do not fit
 * @example const t = fromBlob(new Float32Array([1, 2, 3, 4]), [2, 2]);
 */
export function fromBlob(data: ArrayBufferView, size?: Shape): Tensor {
  if (!ArrayBuffer.isView(data)) throw unexpected('fromBlob', 'data', 'a typed array', data);
  const known = data instanceof Float32Array ? float32 : dtypeOfArray(data);
  if (known === null) throw new ArgumentError(`fromBlob: a ${data.constructor.name} has no matching dtype`, { op: 'fromBlob' });
  const reason = unlendable(data);
  if (reason !== null) throw new ArgumentError(`fromBlob: the ${data.constructor.name} ${reason}; copy it with tensor() while its memory is there`, { op: 'fromBlob' });
  const count = data.byteLength / known.itemsize;
  const shape = size ?? [count];
  checkSizes(shape, 'fromBlob');
  if (numelOf(shape) !== count) throw new ShapeError(`fromBlob: shape ${formatShape(shape)} does not hold ${count} elements`, { op: 'fromBlob', size: shape });
  if (count === 0) return empty(shape, { dtype: known, device: 'cpu' });
  return valueAccess().adopt(data, [...shape], known);
}

/** A tensor of the data: the tensor itself where dtype and device are right already, the memory of a typed array where it can be shared, else a copy. */
export function asTensor(data: NestedArray | ArrayBufferView | Tensor, options: Pick<TensorOptions, 'dtype' | 'device'> = {}): Tensor {
  const { dtype, device } = optionsOf('asTensor', options);
  const target = { ...(dtype ? { dtype } : {}), ...(device ? { device } : {}) };
  if (data instanceof Tensor) return data.to(target);
  const shares = ArrayBuffer.isView(data) && (data instanceof Float32Array || dtypeOfArray(data) !== null) && unlendable(data) === null;
  return shares ? fromBlob(data).to(target) : tensor(data, target);
}

/** A tensor without dims. */
export function scalarTensor(value: number | boolean, options: TensorOptions = {}): Tensor {
  if (typeof value !== 'number' && typeof value !== 'boolean') throw unexpected('scalarTensor', 'value', 'a number or a boolean', value);
  return tensor(value, optionsOf('scalarTensor', options));
}

/** `steps` values from `base ** start` to `base ** end`, evenly spaced in their logarithms. @throws ArgumentError for a bad count */
export function logspace(start: number, end: number, steps: number, options: TensorOptions & { base?: number } = {}): Tensor {
  const { base = 10, ...place } = optionsOf('logspace', options);
  for (const [name, value] of Object.entries({ start, end, base })) checkNumber('logspace', name, value);
  checkSizesOf('logspace', { steps });
  const { requiresGrad, pinMemory, ...rest } = place;
  const exponents = linspace(start, end, steps, rest);
  const powers = exponents.mul(Math.log(base)).exp();
  return finish(powers, { ...(requiresGrad ? { requiresGrad } : {}), ...(pinMemory ? { pinMemory } : {}) });
}

/** Whether a value is a tensor. */
export function isTensor(value: unknown): value is Tensor {
  return value instanceof Tensor;
}

/** Whether the elements are floating point numbers. */
export function isFloatingPoint(input: Tensor): boolean {
  requireTensor(input, 'isFloatingPoint');
  return input.dtype.isFloatingPoint;
}

/** Number of elements. */
export function numel(input: Tensor): number {
  requireTensor(input, 'numel');
  return input.numel();
}

/** The dtype in which two operands meet, as PyTorch promotes. @see PyTorch `torch.result_type` */
export function resultType(a: TensorLike, b: TensorLike): DType {
  const place: Device = a instanceof Tensor ? a.device : b instanceof Tensor ? b.device : deviceOf('cpu');
  return promotedType([operand(a, place, 'resultType'), operand(b, place, 'resultType')]);
}

addMethod('newTensor', function (data: NestedArray | ArrayBufferView, options: TensorOptions = {}) {
  return tensor(data, { dtype: this.dtype, device: this.device, ...options });
});
addMethod('newEmpty', function (size: Shape, options: TensorOptions = {}) {
  return empty(size, { dtype: this.dtype, device: this.device, ...options });
});
addMethod('isSigned', function () {
  return !this.dtype.name.startsWith('u') && this.dtype.category > 0;
});
addMethod('isSetTo', function (other: Tensor) {
  requireTensor(other, 'isSetTo', 'other');
  return (
    this.storage === other.storage &&
    this.storageOffset === other.storageOffset &&
    formatShape([...this.shape, ...this.strides]) === formatShape([...other.shape, ...other.strides])
  );
});
addMethod(Symbol.iterator, function* () {
  if (this.ndim === 0) throw new ShapeError('a tensor without dims cannot be iterated over; use item()', { shape: this.shape });
  for (let i = 0; i < (this.shape[0] as number); i++) yield this.select(0, i);
});

declare module '../core/tensor.js' {
  interface Tensor {
    /** A tensor of this dtype and device from values (copied). */
    newTensor(data: NestedArray | ArrayBufferView, options?: TensorOptions): Tensor;
    /** A tensor of this dtype and device whose values are undefined. */
    newEmpty(size: Shape, options?: TensorOptions): Tensor;
    /** Whether the dtype has negative numbers. */
    isSigned(): boolean;
    /** Whether both are the same window on the same memory. */
    isSetTo(other: Tensor): boolean;
    /** The slices of dim 0, as views. Gradient: yes. @throws ShapeError for a tensor without dims */
    [Symbol.iterator](): Generator<Tensor>;
  }
}
