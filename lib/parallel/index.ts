/** The public API of parallel training. */
export * from './tensor-parallel/index.js';
