/** Layers and containers, with PyTorch's names and parameter names. */

export * from './attention.js';
export * from './containers.js';
export * as functional from './functional.js';
export * as init from './init.js';
export * from './layers.js';
export { type AnyModule, Module, type ModuleTarget } from './module.js';
export { Parameter } from './parameter.js';
export type { LoadResult, StateDict } from './state-dict.js';
export * from './transformer.js';
export * as utils from './utils.js';
