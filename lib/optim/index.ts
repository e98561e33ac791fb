/** Optimizers, with PyTorch's names, hyperparameters and state. */
export { Adam, AdamW, type AdamOptions } from './adam.js';
export { Optimizer, type OptimizerStateDict, type ParamGroup, type ParamState, type Params } from './optimizer.js';
export { SGD, type SGDOptions } from './sgd.js';
export * as lrScheduler from './schedulers.js';
