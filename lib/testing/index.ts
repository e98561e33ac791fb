/** The entry `shardwise/testing`: assertions, tests of several ranks, compile counters, text checks. */
import '../runtime-distributed.js';
import { declareExports } from '../core/library-exports.js';
import * as entry from './index.js';

export { assertClose, assertCloseAsync, type CloseOptions } from './assert-close/assert-close.js';
export { tensorEquality } from './assert-close/tensor-equality.js';
export { CompileCounter, CompileCounterWithBackend } from './compile-counter.js';
export { FakeStore } from './fake-store.js';
export { FileCheck } from './file-check.js';
export {
  type Declare,
  type DeclareWithGpu,
  type GpuOptions,
  type GpuTests,
  gpu,
  type SuiteBody,
  type TestBody,
  type TestRunner,
} from './gpu.js';
export { type SlowConnection, slowCollectives } from './slow-collectives.js';
export { type RanksOptions, type TestFunction, withRanks } from './with-ranks.js';

declareExports(entry);
