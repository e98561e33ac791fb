/** Converts the parameters and buffers of a module to another dtype or device, in place. */
import { noGrad } from '../autograd/grad-mode.js';
import type { Device, DeviceName } from '../core/device.js';
import { type DType, type DTypeLike, dtypeOf } from '../core/dtype.js';
import { optionsOf, unexpected } from '../core/options.js';
import { swapData } from '../core/set-storage.js';
import type { Tensor } from '../core/tensor.js';
import { dtypeOrDevice } from '../core/to-target.js';
import type { AnyModule } from './module.js';

/** The argument of `module.to`. */
export interface ModuleTarget {
  /** The dtype of floating-point parameters and buffers. */
  dtype?: DTypeLike;
  /** The device of parameters and buffers. */
  device?: DeviceName | Device;
}

/** Moves and converts all parameters, buffers and gradients; only floating ones change dtype. */
export function convertModule(
  module: AnyModule,
  target: DTypeLike | DeviceName | Device | ModuleTarget,
): void {
  const { dtype, device } = targetOf(target);
  noGrad(() => {
    for (const t of [...module.parameters(), ...module.buffers()])
      for (const each of [t, t.gradTensor]) {
        if (each === null) continue;
        convertTensor(each, {
          ...(dtype && each.dtype.isFloatingPoint ? { dtype } : {}),
          ...(device ? { device } : {}),
        });
      }
  });
}

function targetOf(target: DTypeLike | DeviceName | Device | ModuleTarget): {
  dtype?: DType;
  device?: DeviceName | Device;
} {
  const given: ModuleTarget | null =
    dtypeOrDevice(target) ?? (typeof target === 'object' ? (target as ModuleTarget | null) : null);
  if (given === null)
    throw unexpected('to', 'target', 'a dtype, a device, or an object of both', target);
  const { dtype, ...place } = optionsOf('to', given, 'dtype device');
  return { ...place, ...(dtype === undefined ? {} : { dtype: dtypeOf(dtype, 'to') }) };
}

/**
 * Gives a tensor the converted values. Disposes of the old memory now, not at garbage collection.
 */
function convertTensor(t: Tensor, target: { dtype?: DType; device?: DeviceName | Device }): void {
  const view = t.detach();
  const converted = view.to(target);
  if (converted.storage !== t.storage) swapData(t, converted);
  if (converted !== view) converted.dispose();
  view.dispose();
}
