/** The public API of parallel training. */

export * from './fully-shard/index.js';
export * from './tensor-parallel/index.js';
