/** The `autograd` namespace: automatic differentiation beside the methods of tensors. */
export * from '../core/absent-names/autograd.js';
export { AccumulateGrad } from './accumulate-grad.js';
export { isAnomalyEnabled, setDetectAnomaly } from './anomaly.js';
export { type BackwardOptions, backward, type GradOptions, grad } from './backward.js';
export { isInBackward, queueCallback } from './backward-callbacks.js';
export { delayPostAccumulateGradHooks, runPostAccumulateGradHooks } from './delayed-hooks.js';
export { Function, FunctionContext } from './function.js';
export { setGradMemory } from './grad-memory.js';
export { type GradcheckOptions, gradcheck, gradgradcheck } from './gradcheck.js';
export { type MultiGradHookOptions, registerMultiGradHook } from './multi-grad-hook.js';
export { type HookHandle, Node } from './node.js';
export { type OpaqueHookOptions, opaqueHook } from './opaque-hook.js';
export { type RecomputedOptions, type RecomputePolicy, recomputed } from './recomputed.js';
export {
  type SavedTensorsHooksOptions,
  savedTensorsHooks,
  withoutSavedTensorsHooks,
} from './saved-tensor.js';
export { unsafePreserveVersionCounter, unsafeSetVersionCounter } from './version.js';
