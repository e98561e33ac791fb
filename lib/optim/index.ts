/** Optimizers, with PyTorch's names, hyperparameters and state. */
export { Adam, type AdamOptions, AdamW } from './adam.js';
export {
  Optimizer,
  type OptimizerStateDict,
  type ParamGroup,
  type ParamState,
  type Params,
  type StepHook,
  type StepMode,
} from './optimizer.js';
export * as lrScheduler from './schedulers.js';
export { SGD, type SGDOptions } from './sgd.js';
