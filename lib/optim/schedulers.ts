/** The `optim.lrScheduler` namespace. */

export * from './lr-compositions.js';
export * from './lr-cosine.js';
export * from './lr-cycles.js';
export * from './lr-factors.js';
export * from './lr-plateau.js';
export * from './lr-scheduler.js';
export type { SchedulerState } from './scheduler-state.js';
