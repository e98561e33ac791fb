/** What `to` is given: a dtype or a device, each itself or by name. */
import { Device, type DeviceName, device as deviceOf } from './device.js';
import { type DTypeLike, dtypeNames, isDtype } from './dtype.js';
import { DeviceError } from './errors.js';
import { shown } from './options.js';

/**
 * Which of both a value is; null if it is neither it nor a name. @throws DeviceError for a name of
 * neither
 */
export function dtypeOrDevice(target: unknown): { dtype: DTypeLike } | { device: Device } | null {
  if (isDtype(target)) return { dtype: target };
  if (target instanceof Device) return { device: target };
  if (typeof target !== 'string') return null;
  if (/^(cpu|cuda)/.test(target)) return { device: deviceOf(target as DeviceName) };
  const message =
    "to: expected a device such as 'cpu', 'cuda' or 'cuda:1', or a dtype, one of " +
    `${dtypeNames.join(', ')}, got ${shown(target)}`;
  throw new DeviceError(message, { op: 'to', given: target });
}
