/** Shardwise: tensors, automatic differentiation, `nn`, `optim` and `compile`, on CPU and CUDA. */
import './runtime.js';
import { refuseIndices, refuseSnakeCase } from './core/absent.js';
import './core/absent-names/tensor.js';
import { declareExports } from './core/library-exports.js';
import * as entry from './index.js';

export * as amp from './amp/index.js';
export {
  enableGrad,
  inferenceMode,
  isGradEnabled,
  isInferenceMode as isInferenceModeEnabled,
  noGrad,
  setGradEnabled,
} from './autograd/grad-mode.js';
export * as autograd from './autograd/index.js';
export * as ops from './autograd/op-namespaces.js';
export {
  type GetOptions,
  loadSafetensors,
  type ReadIntoOptions,
  type ReadIntoRequest,
  SafetensorsFile,
} from './checkpoint/load.js';
export type { IndexRange } from './checkpoint/ranges.js';
export {
  type SavedFile,
  type SaveOptions,
  saveSafetensors,
  saveText,
} from './checkpoint/save.js';
export type { Stateful } from './checkpoint/state/paths.js';
export type { CheckpointState, CheckpointValue } from './checkpoint/state/values.js';
export {
  type LoadCheckpointOptions,
  loadCheckpoint,
  saveCheckpoint,
} from './checkpoint/training-checkpoint.js';
export {
  type CompileBackend,
  type CompiledGraph,
  type CompileOptions,
  compile,
  graphBreak,
} from './compile/compile.js';
export * as compiler from './compile/compiler.js';
export * as inductor from './compile/inductor.js';
export * from './core/absent-names/shardwise.js';
export {
  Device,
  type DeviceName,
  type DeviceType,
  device,
  getDefaultDevice,
  setDefaultDevice,
  withDevice,
} from './core/device.js';
export {
  bfloat16,
  bool,
  DType,
  type DTypeLike,
  type DTypeName,
  dtypeByName,
  float16,
  float32,
  float64,
  getDefaultDtype,
  int8,
  int16,
  int32,
  int64,
  promoteTypes,
  setDefaultDtype,
  uint8,
} from './core/dtype.js';
export { type FloatInfo, finfo, type IntInfo, iinfo } from './core/dtype-info.js';
export * from './core/errors.js';
export type { MeshDrawsState } from './core/mesh-rng.js';
export {
  defaultGenerator,
  forkRng,
  Generator,
  getRngState,
  initialSeed,
  manualSeed,
  type RngState,
  seed,
  setRngState,
} from './core/random.js';
export { keep, OpenScope, scope } from './core/scope.js';
export type { Shape } from './core/shape.js';
export { Storage } from './core/storage.js';
export { Tensor } from './core/tensor.js';
export * as tree from './core/tree.js';
export type { TypedArray } from './core/values.js';
export * as cuda from './cuda/index.js';
export * as library from './library/index.js';
export * as memory from './memory/index.js';
export * as nn from './nn/index.js';
export * from './ops/index.js';
export * as optim from './optim/index.js';
export * as profiler from './profiler/index.js';

declareExports(entry);

refuseIndices(entry.Tensor.prototype);
refuseSnakeCase('Tensor', entry.Tensor.prototype);
