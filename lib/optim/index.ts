/** Optimizers, with PyTorch's names, hyperparameters and state. */
export * from '../core/absent-names/optim.js';
export { Adam, type AdamOptions, AdamW } from './adam.js';
export * as lrScheduler from './lr-scheduler/index.js';
export {
  Optimizer,
  type OptimizerStateDict,
  type ParamGroup,
  type ParamState,
  type Params,
  type StepHook,
} from './optimizer.js';
export { SGD, type SGDOptions } from './sgd.js';
export type { StepMode } from './step-mode.js';
