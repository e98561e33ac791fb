/** Automatic mixed precision. */
export { type AutocastOptions, autocast, getAutocastDtype, isAutocastEnabled } from './autocast.js';
export { GradScaler, type GradScalerOptions, type GradScalerState } from './grad-scaler.js';
