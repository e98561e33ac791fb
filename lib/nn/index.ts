/** Layers and containers, with PyTorch's names and parameter names. */
export * from './layers.js';
export * from './containers.js';
export * from './attention.js';
export * from './transformer.js';
export { type AnyModule, Module, type ModuleTarget } from './module.js';
export { Parameter } from './parameter.js';
export type { LoadResult, StateDict } from './state-dict.js';
export * as init from './init.js';
export * as utils from './utils.js';
