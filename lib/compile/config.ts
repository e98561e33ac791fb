/** `compiler.config`: settings of all compiled functions. */
import { checkNumber } from '../core/options.js';

/** Settings of all compiled functions. @see PyTorch `torch._dynamo.config` */
export interface CompileConfig {
  /**
   * Captures that a compiled function keeps, 8 by default. A call that none of them serves runs
   * uncompiled from then on, with one warning that says what changed between the captures; with
   * `fullgraph` it throws a CompileError.
   */
  recompileLimit: number;
}

let recompileLimit = 8;

/** Settings of all compiled functions. @throws ArgumentError for a limit that is not an integer above 0 */
export const config: CompileConfig = Object.seal({
  get recompileLimit(): number {
    return recompileLimit;
  },
  set recompileLimit(value: number) {
    checkNumber('compiler.config', 'recompileLimit', value, { from: 1, whole: true });
    recompileLimit = value;
  },
});
