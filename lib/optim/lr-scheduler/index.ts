/** The `optim.lrScheduler` namespace, which is PyTorch's `torch.optim.lr_scheduler`. */
export * from './compositions.js';
export * from './cosine.js';
export * from './cycles.js';
export * from './factors.js';
export * from './plateau.js';
export { LRScheduler } from './scheduler.js';
export type { SchedulerState } from './state.js';
