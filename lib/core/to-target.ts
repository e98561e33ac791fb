/** The argument of `to`: a dtype or a device, or the name of one. */
import { Device, type DeviceName, device as deviceOf } from './device.js';
import { type DTypeLike, dtypeNames, isDtype } from './dtype.js';
import { DeviceError } from './errors.js';
import { shown } from './options.js';

/**
 * Finds out whether a value is a dtype or a device, or names one; null if it is not even a string.
 * @throws DeviceError for any other string
 */
export function dtypeOrDevice(target: unknown): { dtype: DTypeLike } | { device: Device } | null {
  if (isDtype(target)) return { dtype: target };
  if (target instanceof Device) return { device: target };
  if (typeof target !== 'string') return null;
  if (/^(cpu|cuda|meta)/.test(target)) return { device: deviceOf(target as DeviceName) };
  const message =
    "to: expected a device such as 'cpu', 'cuda', 'cuda:1' or 'meta', or a dtype, one of " +
    `${dtypeNames.join(', ')}, got ${shown(target)}`;
  throw new DeviceError(message, { op: 'to', given: target });
}
