/** The `compiler` namespace, which is PyTorch's `torch.compiler`. */
import { resetBackward } from './autograd-capture/cache.js';
import { reset as resetFunctions } from './cache.js';

export { beforeCapture } from './capture/prepare.js';
export { capturedStep, type DisableOptions, disable, isCompiling } from './compile.js';
export { type CompileConfig, config } from './config.js';
export { markDynamic } from './dynamic-marks.js';
export {
  type BreakReport,
  type CompileReport,
  explain,
  type GraphReport,
  type RecaptureReport,
} from './explain.js';
export { markRebound } from './rebound.js';

/**
 * Drops all graphs of compiled functions and of backward passes: the next calls capture them anew.
 *
 * @see PyTorch `torch.compiler.reset`
 */
export function reset(): void {
  resetFunctions();
  resetBackward();
}
