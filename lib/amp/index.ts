/** Automatic mixed precision. */
export { type AutocastOptions, autocast, getAutocastDtype, isAutocastEnabled } from './autocast.js';
export { GradScaler, type GradScalerOptions, type ScalableOptimizer } from './grad-scaler.js';
export type { GradScalerState } from './scaler-state.js';
