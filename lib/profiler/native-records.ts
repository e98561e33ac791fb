/** What the addon records of a profile, as objects. */
import type { NativeProfile } from '../native/profile-calls.js';

/** A command as its stream has run it. Times are in microseconds. */
export interface CommandRecord {
  readonly command: number;
  /** The host event that called it; 0 for none. */
  readonly op: number;
  readonly name: string;
  readonly isKernel: boolean;
  /** Whether the calling thread ran it. */
  readonly atOnce: boolean;
  /** How many commands ran together; each has its share of the time. */
  readonly together: number;
  readonly device: number;
  readonly stream: number;
  readonly rankRuntime: number;
  readonly start: number;
  readonly end: number;
}

const ACTIVITY_KINDS = ['kernel', 'memcpy', 'memset'] as const;

/** What a GPU did. */
export interface ActivityRecord {
  /** The command that launched it; 0 if that is not known. */
  readonly command: number;
  readonly kind: (typeof ACTIVITY_KINDS)[number];
  readonly name: string;
  readonly device: number;
  /** The stream as the driver numbers it; -1 if events timed the command. */
  readonly queue: number;
  readonly bytes: number;
  readonly start: number;
  readonly end: number;
}

/** Memory that came, or went if `bytes` is negative. */
export interface MemoryRecord {
  readonly op: number;
  /** -1 for pinned memory. */
  readonly device: number;
  readonly rankRuntime: number;
  readonly bytes: number;
  readonly allocated: number;
  readonly reserved: number;
  readonly time: number;
}

/** @internal */
export interface NativeRecords {
  readonly commands: CommandRecord[];
  readonly activities: ActivityRecord[];
  readonly memory: MemoryRecord[];
}

/** Rows of a buffer of the addon, by the number of its columns. */
function rowsOf<T>(buffer: ArrayBuffer, columns: number, row: (of: Float64Array) => T): T[] {
  const numbers = new Float64Array(buffer);
  return Array.from({ length: numbers.length / columns }, (_, i) =>
    row(numbers.subarray(i * columns, (i + 1) * columns)),
  );
}

type Eleven = [...Seven, number, number, number, number];
type Eight = [...Seven, number];
type Seven = [number, number, number, number, number, number, number];

export function decode({ names, commands, activities, memory }: NativeProfile): NativeRecords {
  return {
    commands: rowsOf(commands, 11, (row) => {
      const [command, op, name, isKernel, atOnce, together, device, stream, rank, start, end] =
        row as unknown as Eleven;
      return {
        command,
        op,
        name: names[name] as string,
        isKernel: isKernel === 1,
        atOnce: atOnce === 1,
        together,
        device,
        stream,
        rankRuntime: rank,
        start,
        end,
      };
    }),
    activities: rowsOf(activities, 8, (row) => {
      const [command, kind, name, device, queue, bytes, start, end] = row as unknown as Eight;
      return {
        command,
        kind: ACTIVITY_KINDS[kind] as ActivityRecord['kind'],
        name: names[name] as string,
        device,
        queue,
        bytes,
        start,
        end,
      };
    }),
    memory: rowsOf(memory, 7, (row) => {
      const [op, device, rankRuntime, bytes, allocated, reserved, time] = row as unknown as Seven;
      return { op, device, rankRuntime, bytes, allocated, reserved, time };
    }),
  };
}
