/**
 * What belongs to one rank where several share a process: devices with streams of their own, and random numbers. Looked up by
 * factories, device names and random numbers, never on the path of an op: ops follow their operands' device.
 */
import type { Device } from './device.js';
import type { Generator } from './random.js';

/** @internal */
export class Home {
  /** Who it is, for errors: `rank 3`; null for the process itself. */
  readonly label: string | null;
  /** By code. */
  readonly devices: Device[] = [];
  defaultDevice: Device | null = null;
  generator: Generator | null = null;
  /** The index that `cuda` without a number means; asked once, because that may open the driver. */
  findCudaIndex: (() => number) | null = null;
  /** Called before JavaScript waits for a value: throws where the value needs ranks that JavaScript has not run yet. */
  beforeWaiting: ((op: string) => void) | null = null;

  constructor(label: string | null) {
    this.label = label;
  }
}

/** What a program has that is not one of several ranks. @internal */
export const processHome = new Home(null);

let find: (() => Home | undefined) | null = null;

/** @internal null where no ranks share the process, so that a look-up costs nothing */
export function installHomeFinder(finder: (() => Home | undefined) | null): void {
  find = finder;
}

/** @internal */
export function currentHome(): Home {
  return find === null ? processHome : (find() ?? processHome);
}
