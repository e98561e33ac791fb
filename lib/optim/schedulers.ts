/** The `optim.lrScheduler` namespace. */
export * from './lr-scheduler.js';
export * from './lr-cycles.js';
