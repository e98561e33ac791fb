/** The `profiler` namespace: where the time and the memory of a program go. */
export type { CollectiveEvent as ProfiledCollective } from '../core/collective.js';
export type { ChromeTrace, TraceEvent } from './chrome-trace.js';
export type {
  KernelEvent,
  MemoryEvent,
  ProfilerEvent,
} from './events.js';
export type { ProfilerEventKind } from './host-events.js';
export { type EventAverage, KeyAverages, type KeyAveragesOptions } from './key-averages.js';
export type { DeviceTimer } from './native-log.js';
export { Profile, profile } from './profile.js';
export type { ProfileOptions, ProfilerActivity } from './profile-options.js';
export { recordFunction } from './record-function.js';
export {
  type ProfilerAction,
  type ProfilerSchedule,
  type ScheduleOptions,
  schedule,
} from './schedule.js';
export type { SortKey, TableOptions } from './table.js';
