/** Optimizers, with PyTorch's names, hyperparameters and state. */
import { refuseSnakeCase } from '../core/absent.js';
import { LRScheduler } from './lr-scheduler/index.js';
import { Optimizer } from './optimizer.js';

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

for (const Class of [Optimizer, LRScheduler]) refuseSnakeCase(Class.name, Class.prototype);
