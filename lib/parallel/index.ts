/** What is public of parallel training. */
export * from './tensor-parallel/index.js';
