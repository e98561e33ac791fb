/** Devices and their streams. A device is numbered for native code: 0 is the CPU, 1 + n is `cuda:n`. */
import { DeviceError } from './errors.js';
import { checkNumber, checkOneOf, shown } from './options.js';

export type DeviceType = 'cpu' | 'cuda';
export type DeviceName = 'cpu' | 'cuda' | `cuda:${number}`;

/** A place where tensors live. Instances are interned, so `===` compares them. */
export class Device {
  readonly type: DeviceType;
  readonly index: number;
  /** @internal the number native code uses */
  readonly code: number;
  /** @internal id of the stream that launches on this device go to; -1 until first used */
  currentStream = -1;

  /** @internal */
  constructor(type: DeviceType, index: number) {
    checkOneOf('Device', 'type', type, ['cpu', 'cuda']);
    checkNumber('Device', 'index', index, { from: 0, to: 999, whole: true });
    this.type = type;
    this.index = index;
    this.code = type === 'cpu' ? 0 : 1 + index;
  }

  toString(): string {
    return this.type === 'cpu' ? 'cpu' : `cuda:${this.index}`;
  }
}

const devices: Device[] = [new Device('cpu', 0)];

/** The CPU. */
export const cpu: Device = devices[0] as Device;

/** @internal */
export function deviceByCode(code: number): Device {
  let found = devices[code];
  if (!found) {
    found = new Device('cuda', code - 1);
    devices[code] = found;
  }
  return found;
}

/**
 * Finds a device by name: `'cpu'`, `'cuda'` (the current one, index 0) or `'cuda:3'`.
 *
 * @throws DeviceError if the name is malformed.
 */
export function device(name: DeviceName | Device): Device {
  if (name instanceof Device) return name;
  if (name === 'cpu') return cpu;
  const match = typeof name === 'string' ? /^cuda(?::(\d{1,3}))?$/.exec(name) : null;
  if (!match) {
    throw new DeviceError(`device: expected a device such as 'cpu', 'cuda' or 'cuda:1', got ${shown(name)}`, { op: 'device', given: name });
  }
  return deviceByCode(1 + Number(match[1] ?? 0));
}

let defaultDevice = cpu;

/** The device of new tensors when none is given; the CPU unless changed. */
export function getDefaultDevice(): Device {
  return defaultDevice;
}

/** @throws DeviceError if the name is malformed. */
export function setDefaultDevice(name: DeviceName | Device): void {
  defaultDevice = device(name);
}
