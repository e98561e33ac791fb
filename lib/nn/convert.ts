/** Converts the parameters and buffers of a module to another dtype or device, in place. */
import { noGrad } from '../autograd/grad-mode.js';
import { type Device, type DeviceName, device as deviceOf } from '../core/device.js';
import { type DType, type DTypeLike, dtypeOf } from '../core/dtype.js';
import { DeviceError } from '../core/errors.js';
import { layers } from '../core/hooks.js';
import { checkFlag, optionsOf, unexpected } from '../core/options.js';
import { gradOf, setGrad } from '../core/set-grad.js';
import { swapData } from '../core/set-storage.js';
import { isNonOverlappingAndDense } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { dtypeOrDevice } from '../core/to-target.js';
import { empty } from '../ops/factories.js';
import type { AnyModule } from './module.js';
import { Parameter } from './parameter.js';

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
  if (device !== undefined && deviceOf(device).type !== 'meta') checkValues(module, device);
  noGrad(() => {
    for (const t of [...module.parameters(), ...module.buffers()])
      for (const each of [t, gradOf(t)]) {
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

/** @throws DeviceError for a module with tensors on `meta`, whose values cannot be moved */
function checkValues(module: AnyModule, target: DeviceName | Device): void {
  for (const [name, t] of [...module.namedParameters(), ...module.namedBuffers()]) {
    if (!t.isMeta) continue;
    throw new DeviceError(
      `to: "${name}" is on meta and has no values to move to ${target}. Give the module memory ` +
        `with toEmpty({ device: '${target}' }), then values with resetParameters() or ` +
        'loadStateDict().',
      { op: 'to', name, device: 'meta' },
    );
  }
}

/** The argument of `module.toEmpty`. */
export interface EmptyTarget {
  /** The device of the new memory. */
  device: DeviceName | Device;
  /** Whether to include the modules below; true by default. */
  recurse?: boolean;
}

/** Gives all parameters and buffers new memory on a device, with undefined values. */
export function emptyModule(module: AnyModule, target: DeviceName | Device | EmptyTarget): void {
  const { device, recurse = true } = emptyTargetOf(target);
  checkFlag('toEmpty', 'recurse', recurse);
  const place = deviceOf(device);
  noGrad(() => {
    for (const t of [...module.parameters({ recurse }), ...module.buffers({ recurse })]) {
      const made = emptyOn(t, place);
      swapData(t, made);
      made.dispose();
      setGrad(t, null);
      const role = t instanceof Parameter ? 'parameter' : 'buffer';
      layers.backend.observer?.mark(t.storage, role);
    }
  });
}

function emptyTargetOf(target: DeviceName | Device | EmptyTarget): EmptyTarget {
  const named = typeof target === 'string' ? { device: target } : dtypeOrDevice(target);
  if (named !== null && 'device' in named) return named;
  if (typeof target !== 'object' || target === null || !('device' in target))
    throw unexpected('toEmpty', 'target', 'a device, or { device, recurse }', target);
  return optionsOf('toEmpty', target as EmptyTarget, 'device recurse');
}

/** Memory for a tensor of the same shape, dtype, placements and, if it is dense, layout. */
function emptyOn(t: Tensor, device: Device): Tensor {
  if (t.sharding !== null) return t.sharding.empty(t.sizes, t.dtype, device);
  const { dtype } = t;
  return t.isContiguous() || !isNonOverlappingAndDense(t.sizes, t.strides)
    ? empty(t.sizes, { dtype, device })
    : empty([t.numel()], { dtype, device }).asStrided(t.sizes, t.strides);
}
