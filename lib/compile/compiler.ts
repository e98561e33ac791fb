/** The `compiler` namespace, which is PyTorch's `torch.compiler`. */
export { type DisableOptions, disable, isCompiling, reset } from './compile.js';
