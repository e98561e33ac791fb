/** What users see of automatic differentiation beside the methods of tensors. */
export { isAnomalyEnabled, setDetectAnomaly } from './anomaly.js';
export { backward, grad, type BackwardOptions, type GradOptions } from './backward.js';
export { queueCallback } from './engine.js';
export { Function, FunctionContext } from './function.js';
export { Node, type HookHandle } from './node.js';
export { savedTensorsHooks } from './saved-tensor.js';
export { unsafePreserveVersionCounter, unsafeSetVersionCounter } from './version.js';
