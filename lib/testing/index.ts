/** `shardwise/testing`: counters for compiled functions, and checks of texts. */
export { CompileCounter, CompileCounterWithBackend } from './compile-counter.js';
export { FakeStore } from './fake-store.js';
export { FileCheck } from './file-check.js';
