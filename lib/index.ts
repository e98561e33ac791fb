/** Shardwise: tensors, automatic differentiation, `nn`, `optim` and `compile`, on CPU and CUDA. */
import './runtime.js';

export { Tensor } from './core/tensor.js';
export { Storage } from './core/storage.js';
export * from './core/errors.js';
export { DType, type DTypeName, bfloat16, bool, dtypeByName, float16, float32, float64, getDefaultDtype, int16, int32, int64, int8, promoteTypes, setDefaultDtype, uint8 } from './core/dtype.js';
export { Device, type DeviceName, type DeviceType, device, getDefaultDevice, setDefaultDevice } from './core/device.js';
export { Generator, defaultGenerator, manualSeed } from './core/random.js';
export { scope } from './core/scope.js';
export { keep } from './core/keep.js';
export type { Shape } from './core/shape.js';
export type { TypedArray } from './core/values.js';
export * from './ops/index.js';
export { enableGrad, inferenceMode, isGradEnabled, noGrad } from './autograd/grad-mode.js';
export * as autograd from './autograd/index.js';
export * as cuda from './cuda/index.js';
export * as nn from './nn/index.js';
export * as optim from './optim/index.js';
export { type SaveOptions, SafetensorsFile, loadSafetensors, saveSafetensors } from './checkpoint/safetensors.js';
export * as memory from './memory/index.js';
