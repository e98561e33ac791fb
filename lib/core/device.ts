/**
 * Devices and their streams. A device is numbered for native code: 0 is the CPU, 1 + n is `cuda:n`.
 * Native code never sees `meta`, the device of tensors without memory.
 */
import { DeviceError } from './errors.js';
import { checkFunction, checkNumber, checkOneOf, checkSynchronous, shown } from './options.js';
import { currentRuntime, processRuntime, type RankRuntime } from './rank-runtime.js';

/** The kinds of devices that have memory. */
export type DeviceType = 'cpu' | 'cuda';
/** @internal */
export const deviceTypes: readonly DeviceType[] = ['cpu', 'cuda'];
/**
 * The name of a device; `cuda` is the current GPU. Tensors on `meta` have shapes and dtypes, but no
 * memory.
 */
export type DeviceName = 'cpu' | 'cuda' | `cuda:${number}` | 'meta';

const META_CODE = -1;

/**
 * The first value in a tensor that `structuredClone` refuses, and prints: the memory of a tensor
 * belongs to its thread. A property of devices, because tensors are many and devices are few.
 */
const NOT_CLONEABLE = Symbol(
  'a tensor, which belongs to its thread: send await x.read() and x.shape, and call ' +
    'tensor(values).reshape(shape) there; see docs/worker-threads.md',
);

/**
 * A device that holds tensors. Instances are interned, so `===` compares them. Each of several
 * ranks in a process has its own instances.
 */
export class Device {
  /** @internal */
  readonly notCloneable = NOT_CLONEABLE;
  /** `cpu`, `cuda` or `meta`. */
  readonly type: DeviceType | 'meta';
  /** The number of the device among those of its type. */
  readonly index: number;
  /** @internal the number of the device in native code; negative for `meta` */
  readonly code: number;
  /** @internal the rank whose streams the device has */
  readonly runtime: RankRuntime;
  /** @internal id of the stream for launches on this device; -1 before the first use */
  currentStream = -1;

  /** @internal */
  constructor(type: DeviceType | 'meta', index: number, runtime: RankRuntime = processRuntime) {
    checkOneOf('Device', 'type', type, [...deviceTypes, 'meta']);
    checkNumber('Device', 'index', index, { from: 0, to: 999, whole: true });
    this.type = type;
    this.index = index;
    this.code = type === 'meta' ? META_CODE : type === 'cpu' ? 0 : 1 + index;
    this.runtime = runtime;
  }

  /** The name; that of another rank's device includes the rank. */
  toString(): string {
    if (this.type === 'meta') return 'meta';
    const name = this.type === 'cpu' ? 'cpu' : `cuda:${this.index}`;
    return this.runtime === currentRuntime()
      ? name
      : `${name} of ${this.runtime.label ?? 'the main program'}`;
  }

  /** What `console.log` prints. @internal */
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return `Device(${this})`;
  }
}

/**
 * Advice for an error about tensors on two devices. `own` is the device that the other tensor
 * should be on.
 * @internal
 */
export function toOneDevice(own: Device, other: Device): string {
  if (own.type === 'meta' || other.type === 'meta') return META_ADVICE;
  const strange = [own, other].find(({ runtime }) => runtime !== currentRuntime());
  if (strange === undefined) return `Move one with .to('${own}').`;
  const { type, runtime } = strange;
  if (runtime.isRunning)
    return (
      `Ranks that share a process have memory of their own: send what ${runtime.label} has ` +
      'made by a collective, or by send and recv.'
    );
  const origin =
    runtime === processRuntime
      ? `What is on ${strange} was made outside of the ranks`
      : `${runtime.label} has ended`;
  return `${origin}: take a copy of it with .to('${type}').`;
}

/** Advice for an error about a tensor on `meta` where values are needed. @internal */
export const META_ADVICE =
  "Tensors on 'meta' have no values: give a module memory with module.toEmpty({ device }) and " +
  'values with resetParameters() or loadStateDict(), or load it with { assign: true }. To ' +
  "compute shapes alone, move the other tensors with .to('meta').";

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

/** The device of tensors without memory, which all ranks of a process share. @internal */
export const metaDevice: Device = new Device('meta', 0);

/**
 * Finds a device by name: `'cpu'`, `'cuda'` (the rank's own GPU; `cuda:0` outside of ranks),
 * `'cuda:3'` or `'meta'`.
 *
 * @throws DeviceError if the name is malformed.
 */
export function device(name: DeviceName | Device): Device {
  if (name instanceof Device)
    return name.type === 'meta' || name.runtime === currentRuntime()
      ? name
      : deviceByCode(name.code);
  if (name === 'meta') return metaDevice;
  if (name === 'cpu') return deviceByCode(0);
  const match = typeof name === 'string' ? /^cuda(?::(\d{1,3}))?$/.exec(name) : null;
  if (!match) {
    throw new DeviceError(
      `device: expected a device such as 'cpu', 'cuda', 'cuda:1' or 'meta', got ${shown(name)}`,
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

/**
 * Runs a function in which new tensors that are given no device are on this one:
 * `withDevice('meta', () => new Model())` makes a model without memory. Returns what the function
 * returns.
 *
 * @throws DeviceError if the name is malformed; ArgumentError if `fn` is no function, or returns a
 * promise
 * @see PyTorch `torch.device` as a context manager
 * @example
 * const model = withDevice('meta', () => new nn.Linear(8, 4));
 * model.weight.isMeta; // true
 */
export function withDevice<T>(name: DeviceName | Device, fn: () => T): T {
  const chosen = device(name);
  checkFunction('withDevice', 'fn', fn);
  const runtime = currentRuntime();
  const before = runtime.defaultDevice;
  runtime.defaultDevice = chosen;
  let result: T;
  try {
    result = fn();
  } finally {
    runtime.defaultDevice = before;
  }
  checkSynchronous('withDevice', result, 'the device would change back at its first await');
  return result;
}
