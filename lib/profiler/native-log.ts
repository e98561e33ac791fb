/** The log of the addon: what streams and devices do for the ranks that are profiled. */
import { writer } from '../eager/submit.js';
import { libraryCandidates, libraryNamed } from '../native/libraries.js';
import {
  type ActivityRecord,
  type CommandRecord,
  decode,
  type MemoryRecord,
  type NativeRecords,
} from './native-records.js';

/** Who times GPUs. */
export type DeviceTimer = 'cupti' | 'events';

const TIMERS = { none: 0, events: 1, cupti: 2 };

/** Shared with the addon: the op that runs, and the number of the last command. */
const shared = new ArrayBuffer(2 * Int32Array.BYTES_PER_ELEMENT);
export const words = new Int32Array(shared);

/** Records that no session has taken. */
let left: NativeRecords = { commands: [], activities: [], memory: [] };

/** What {@link openLog} needs to know. */
interface LogSettings {
  readonly onHost: boolean;
  readonly timer: DeviceTimer | null;
}

/** Starts to record a rank runtime. Returns why CUPTI is not used, or ''. */
export function openLog(rankRuntime: number, { onHost, timer }: LogSettings): string {
  const cupti = libraryNamed('CUPTI');
  const candidates = timer === 'cupti' ? libraryCandidates(cupti) : [];
  const isOff = timer === 'cupti' && candidates.length === 0;
  const used = TIMERS[isOff ? 'events' : (timer ?? 'none')];
  const list = candidates.join('\n');
  const reason = writer.addon.profileStart(rankRuntime, shared, onHost, used, list);
  return isOff ? `${cupti.variable} names no library` : reason;
}

/** Ends the record; commands before it are still recorded when they run. */
export function closeLog(rankRuntime: number): void {
  writer.addon.profileStop(rankRuntime);
}

export function isLogDone(rankRuntime: number): boolean {
  return writer.addon.profileDone(rankRuntime);
}

/**
 * A part of the log: of a rank runtime, or of all for 0; commands between two numbers, and what has
 * no number between two times, in microseconds.
 */
export interface LogRange {
  readonly rankRuntime: number;
  readonly after: number;
  readonly last: number;
  readonly start: number;
  readonly end: number;
}

/** Takes the records of a rank runtime out of the log, and returns those of the range. */
export function takeRecords({ rankRuntime, after, last, start, end }: LogRange): NativeRecords {
  const fresh = decode(writer.addon.profileTake());
  const isOwn = (of: CommandRecord | MemoryRecord): boolean =>
    rankRuntime === 0 || of.rankRuntime === rankRuntime;
  const [commands, otherCommands] = divide([...left.commands, ...fresh.commands], isOwn);
  const others = new Set(otherCommands.map(({ command }) => command));
  const [activities, otherActivities] = divide(
    [...left.activities, ...fresh.activities],
    ({ command }: ActivityRecord) => !others.has(command),
  );
  const [memory, otherMemory] = divide([...left.memory, ...fresh.memory], isOwn);
  left = { commands: otherCommands, activities: otherActivities, memory: otherMemory };
  const isInside = ({ command }: { readonly command: number }): boolean =>
    command > after && command <= last;
  return {
    commands: commands.filter(isInside),
    activities: activities.filter((each) =>
      each.command === 0 ? each.start >= start && each.start <= end : isInside(each),
    ),
    memory: memory.filter(({ time }) => time >= start && time <= end),
  };
}

function divide<T>(list: readonly T[], isFirst: (each: T) => boolean): [T[], T[]] {
  const first: T[] = [];
  const second: T[] = [];
  for (const each of list) (isFirst(each) ? first : second).push(each);
  return [first, second];
}

const CLOCK_TRIES = 5;

/** Microseconds of the addon's clock when `performance.now()` is 0. */
export function clockOffset(): number {
  let [offset, least] = [0, Number.POSITIVE_INFINITY];
  for (let i = 0; i < CLOCK_TRIES; i++) {
    const before = performance.now();
    const native = writer.addon.profileClock();
    const passed = performance.now() - before;
    if (passed < least) [offset, least] = [native - (before + passed / 2) * 1e3, passed];
  }
  return offset;
}
