/** Layers and containers, with PyTorch's names and parameter names. */
import { refuseSnakeCase } from '../core/absent.js';
import { Module } from './module.js';
import './module-state.js';

export * from '../core/absent-names/nn.js';
export * from './activations.js';
export * from './activations-in-place.js';
export * from './attention.js';
export * from './containers.js';
export * as functional from './functional.js';
export * as init from './init.js';
export {
  Bilinear,
  CosineSimilarity,
  Dropout,
  Embedding,
  Flatten,
  Identity,
  type LayerOptions,
  Linear,
  PairwiseDistance,
  Unflatten,
} from './layers.js';
export * from './losses.js';
export {
  type AnyModule,
  type EmptyTarget,
  Module,
  type ModuleTarget,
  type WalkOptions,
} from './module.js';
export type { ForwardHookOptions, HookOptions } from './module-hooks.js';
export * from './normalization.js';
export { Parameter } from './parameter.js';
export type { LoadResult, StateDict } from './state-dict.js';
export type { LoadStateDictReport } from './state-hooks.js';
export * from './transformer.js';
export {
  type Activation,
  type DecoderMasks,
  type EncoderMasks,
  TransformerDecoderLayer,
  TransformerEncoderLayer,
} from './transformer-layers.js';
export * as utils from './utils.js';

refuseSnakeCase('Module', Module.prototype);
