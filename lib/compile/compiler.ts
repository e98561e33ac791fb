/** The `compiler` namespace, which is PyTorch's `torch.compiler`. */

export { type DisableOptions, disable, isCompiling, reset } from './compile.js';
export { type CompileConfig, config } from './config.js';
export { markDynamic } from './dynamic-marks.js';
export {
  type BreakReport,
  type CompileReport,
  explain,
  type GraphReport,
  type RecaptureReport,
} from './explain.js';
