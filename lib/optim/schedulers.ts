/** The `optim.lrScheduler` namespace. */

export * from './lr-cycles.js';
export * from './lr-scheduler.js';
