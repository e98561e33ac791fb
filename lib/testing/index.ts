/** `shardwise/testing`: counters for compiled functions. */
export { CompileCounter } from './compile-counter.js';
