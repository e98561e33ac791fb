/** The `optim.lrScheduler` namespace. */

export * from './lr-cycles.js';
export * from './lr-scheduler.js';
export type { SchedulerState } from './scheduler-state.js';
