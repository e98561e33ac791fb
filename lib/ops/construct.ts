/**
 * Making tensors from raw values and reading them back: the hooks to whoever holds memory,
 * installed by runtime.ts.
 */
import type { Device } from '../core/device.js';
import type { DType } from '../core/dtype.js';
import type { Shape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';

/** Moves values between JavaScript and device memory. @internal */
export interface ValueAccess {
  /** A new row-major tensor with a copy of the raw values. */
  fromRaw(raw: ArrayBufferView, shape: Shape, dtype: DType, device: Device): Tensor;
  /** A new row-major CPU tensor over the array's own memory. */
  adopt(array: ArrayBufferView, shape: Shape, dtype: DType): Tensor;
  /** Bytes of a dense tensor, blocking. */
  readSync(t: Tensor, destination: ArrayBufferView): void;
  /** Bytes of a dense tensor. */
  read(t: Tensor, destination: ArrayBufferView): Promise<void>;
  /** One element, blocking. */
  readElement(t: Tensor): number | bigint;
}

let access: ValueAccess;

/** @internal */
export function installValueAccess(implementation: ValueAccess): ValueAccess {
  const before = access;
  access = implementation;
  return before;
}

export function makeFromValues(
  raw: ArrayBufferView,
  shape: Shape,
  dtype: DType,
  device: Device,
): Tensor {
  return access.fromRaw(raw, shape, dtype, device);
}

export function valueAccess(): ValueAccess {
  return access;
}
