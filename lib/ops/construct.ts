/** Tensors from raw values and raw values from tensors, through the current backend. */

import type { ValueAccess } from '../core/backend.js';
import type { Device } from '../core/device.js';
import type { DType } from '../core/dtype.js';
import { layers } from '../core/hooks.js';
import type { Shape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';

export function makeFromValues(
  raw: ArrayBufferView,
  shape: Shape,
  dtype: DType,
  device: Device,
): Tensor {
  return layers.backend.values.fromRaw(raw, shape, dtype, device);
}

export function valueAccess(): ValueAccess {
  return layers.backend.values;
}
