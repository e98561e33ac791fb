/** The public API of parallel training. */

export * from './activation-checkpoint/index.js';
export * from './data-parallel/index.js';
export * from './distributed-checkpoint/index.js';
export * from './flat-param/index.js';
export * from './fully-shard/index.js';
export { registerSharding } from './register-sharding.js';
export * from './tensor-parallel/index.js';
