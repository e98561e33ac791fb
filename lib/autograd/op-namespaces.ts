/** Ops by namespace, as in PyTorch's `torch.ops`. */
export * as fsdp from './fsdp-ops.js';
