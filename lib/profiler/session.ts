/** A session: one stretch of a rank's time that is recorded, by host, streams and devices. */
import { hooks } from '../core/hooks.js';
import { processRuntime, type RankRuntime } from '../core/rank-runtime.js';
import type { HostEvent } from './host-events.js';
import {
  endRecord,
  type HostRecord,
  openRoot,
  type RecordedCollective,
  type RecordedPlan,
  startRecord,
} from './host-recorder.js';
import {
  clockOffset,
  closeLog,
  type DeviceTimer,
  isLogDone,
  openLog,
  takeRecords,
  words,
} from './native-log.js';
import type { NativeRecords } from './native-records.js';

/** What a session records. */
export interface SessionSettings {
  readonly onHost: boolean;
  /** Null without GPUs. */
  readonly timer: DeviceTimer | null;
  readonly recordShapes: boolean;
  readonly withModules: boolean;
  readonly withStack: boolean;
  readonly profileMemory: boolean;
}

/** What a session has recorded. */
export interface Recorded extends NativeRecords {
  readonly settings: SessionSettings;
  readonly events: readonly HostEvent[];
  readonly collectives: readonly RecordedCollective[];
  readonly plans: readonly RecordedPlan[];
  /** The rank that was recorded, and the number of all ranks; null outside of ranks. */
  readonly world: { readonly rank: number; readonly worldSize: number } | null;
  /** Microseconds of the clock of commands when `performance.now()` is 0. */
  readonly clock: number;
  /** By `performance.now()`. */
  readonly start: number;
  readonly end: number;
  readonly timer: DeviceTimer | null;
  /** Why CUPTI does not time GPUs; '' if it does. */
  readonly whyNoCupti: string;
}

export class Session {
  readonly runtime: RankRuntime;
  private readonly settings: SessionSettings;
  private readonly record: HostRecord;
  private readonly clock = clockOffset();
  private readonly start: number;
  private readonly after: number;
  private readonly whyNoCupti: string;
  private readonly world = hooks.rankInWorld?.() ?? null;
  private end = Number.NaN;
  private last = 0;

  constructor(runtime: RankRuntime, settings: SessionSettings) {
    this.runtime = runtime;
    this.settings = settings;
    this.record = { ...settings, events: [], collectives: [], plans: [], root: null };
    this.whyNoCupti = openLog(runtime.id, settings);
    this.after = words[1] as number;
    startRecord(runtime, this.record);
    this.start = performance.now();
  }

  /** Starts a step, which is the parent of what runs until the next one. */
  openStep(name: string): HostEvent {
    return openRoot(this.record, name);
  }

  closeStep(step: HostEvent): void {
    step.end = performance.now();
    this.record.root = null;
    if (this.record.onHost) this.record.events.push(step);
  }

  /** Records nothing more. */
  stop(): void {
    this.end = performance.now();
    this.last = words[1] as number;
    endRecord(this.runtime);
    closeLog(this.runtime.id);
  }

  /** Whether everything that was recorded has run. */
  get isDone(): boolean {
    return isLogDone(this.runtime.id);
  }

  take(): Recorded {
    const { settings, record, world, clock, start, end, after, last, whyNoCupti } = this;
    const rankRuntime = this.runtime === processRuntime ? 0 : this.runtime.id;
    const records = takeRecords({
      rankRuntime,
      after,
      last,
      start: clock + start * 1e3,
      end: clock + end * 1e3,
    });
    for (const event of record.events) if (Number.isNaN(event.end)) event.end = end;
    const timer = settings.timer === null ? null : whyNoCupti === '' ? settings.timer : 'events';
    const { events, collectives, plans } = record;
    return {
      ...records,
      memory: settings.profileMemory ? records.memory : [],
      settings,
      events,
      collectives,
      plans,
      world,
      clock,
      start,
      end,
      timer,
      whyNoCupti: timer === 'cupti' ? '' : whyNoCupti,
    };
  }
}
