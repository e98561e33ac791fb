/**
 * Devices and their streams. A device is numbered for native code: 0 is the CPU, 1 + n is `cuda:n`.
 */
import { DeviceError } from './errors.js';
import { checkNumber, checkOneOf, shown } from './options.js';
import { currentRuntime, processRuntime, type RankRuntime } from './rank-runtime.js';

/** The kinds of devices. */
export type DeviceType = 'cpu' | 'cuda';
/** @internal */
export const deviceTypes: readonly DeviceType[] = ['cpu', 'cuda'];
/** The name of a device; `cuda` is the current GPU. */
export type DeviceName = 'cpu' | 'cuda' | `cuda:${number}`;

/**
 * A device that holds tensors. Instances are interned, so `===` compares them. Each of several
 * ranks in a process has its own instances.
 */
export class Device {
  /** `cpu` or `cuda`. */
  readonly type: DeviceType;
  /** The number of the device among those of its type. */
  readonly index: number;
  /** @internal the number of the device in native code */
  readonly code: number;
  /** @internal the rank whose streams the device has */
  readonly runtime: RankRuntime;
  /** @internal id of the stream for launches on this device; -1 before the first use */
  currentStream = -1;

  /** @internal */
  constructor(type: DeviceType, index: number, runtime: RankRuntime = processRuntime) {
    checkOneOf('Device', 'type', type, deviceTypes);
    checkNumber('Device', 'index', index, { from: 0, to: 999, whole: true });
    this.type = type;
    this.index = index;
    this.code = type === 'cpu' ? 0 : 1 + index;
    this.runtime = runtime;
  }

  /** The name; that of another rank's device includes the rank. */
  toString(): string {
    const name = this.type === 'cpu' ? 'cpu' : `cuda:${this.index}`;
    return this.runtime === currentRuntime()
      ? name
      : `${name} of ${this.runtime.label ?? 'the main program'}`;
  }
}

/**
 * Advice for an error about tensors on two devices. `own` is the device that the other tensor
 * should be on.
 * @internal
 */
export function toOneDevice(own: Device, other: Device): string {
  const strange = [own, other].find(({ runtime }) => runtime !== currentRuntime());
  if (strange === undefined) return `Move one with .to('${own}').`;
  const { type, runtime } = strange;
  if (runtime.isRunning)
    return (
      `Ranks that share a process have memory of their own: send what ${runtime.label} has ` +
      'made by a collective, or by send and recv.'
    );
  const origin =
    runtime === processRuntime ? 'It was made outside of the ranks' : `${runtime.label} has ended`;
  return `${origin}: take a copy of it with .to('${type}').`;
}

/** Finds a device of the current rank by type and index. @internal */
export function deviceByCode(code: number): Device {
  const runtime = currentRuntime();
  let found = runtime.devices[code];
  if (!found) {
    found = code === 0 ? new Device('cpu', 0, runtime) : new Device('cuda', code - 1, runtime);
    runtime.devices[code] = found;
  }
  return found;
}

/** The CPU of the program itself, for objects that belong to no rank. */
export const cpu: Device = deviceByCode(0);

/**
 * Finds a device by name: `'cpu'`, `'cuda'` (the rank's own GPU; `cuda:0` outside of ranks) or
 * `'cuda:3'`.
 *
 * @throws DeviceError if the name is malformed.
 */
export function device(name: DeviceName | Device): Device {
  if (name instanceof Device)
    return name.runtime === currentRuntime() ? name : deviceByCode(name.code);
  if (name === 'cpu') return deviceByCode(0);
  const match = typeof name === 'string' ? /^cuda(?::(\d{1,3}))?$/.exec(name) : null;
  if (!match) {
    throw new DeviceError(
      `device: expected a device such as 'cpu', 'cuda' or 'cuda:1', got ${shown(name)}`,
      { op: 'device', given: name },
    );
  }
  return deviceByCode(1 + (match[1] === undefined ? ownCudaIndex() : Number(match[1])));
}

function ownCudaIndex(): number {
  const runtime = currentRuntime();
  if (runtime.findCudaIndex === null) return 0;
  const index = runtime.findCudaIndex();
  runtime.findCudaIndex = () => index;
  return index;
}

/** The device of new tensors when none is given; the CPU unless changed. */
export function getDefaultDevice(): Device {
  return currentRuntime().defaultDevice ?? deviceByCode(0);
}

/**
 * Sets the default device of new tensors.
 *
 * @throws DeviceError if the name is malformed
 */
export function setDefaultDevice(name: DeviceName | Device): void {
  currentRuntime().defaultDevice = device(name);
}
