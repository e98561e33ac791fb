/** `compiler.config`: settings of all compiled functions. */
import { checkFlag, checkNumber, LONGEST_TIMEOUT_MS } from '../core/options.js';

/** Settings of all compiled functions. @see PyTorch `torch._dynamo.config` */
export interface CompileConfig {
  /**
   * Captures that a compiled function keeps, 8 by default. A call that none of them serves runs
   * uncompiled from then on, with one warning that says what changed between the captures; with
   * `fullgraph` it throws a CompileError. A graph that serves several sizes counts once; it is
   * captured at two of them, and at one more for each 32 calls that its captures serve.
   */
  recompileLimit: number;
  /**
   * How long a rank may capture and compile one function while other ranks wait for it in a
   * collective, in milliseconds, half an hour by default. Only beyond that does the timeout of
   * their group count.
   */
  compileTimeoutMs: number;
  /**
   * Whether the hooks of modules that `fullyShard` shards keep out of graphs: they run at every
   * call, and graphs end at each such module. False by default: graphs gather, free and reduce.
   */
  skipFsdpHooks: boolean;
}

let recompileLimit = 8;
let compileTimeoutMs = 30 * 60_000;
let skipFsdpHooks = false;

/**
 * Settings of all compiled functions. @throws ArgumentError for a limit that is not an integer
 * above 0, a timeout out of range and a flag that is not a boolean
 */
export const config: CompileConfig = Object.seal({
  get recompileLimit(): number {
    return recompileLimit;
  },
  set recompileLimit(value: number) {
    checkNumber('compiler.config', 'recompileLimit', value, { from: 1, whole: true });
    recompileLimit = value;
  },
  get compileTimeoutMs(): number {
    return compileTimeoutMs;
  },
  set compileTimeoutMs(value: number) {
    checkNumber('compiler.config', 'compileTimeoutMs', value, { from: 0, to: LONGEST_TIMEOUT_MS });
    compileTimeoutMs = value;
  },
  get skipFsdpHooks(): boolean {
    return skipFsdpHooks;
  },
  set skipFsdpHooks(value: boolean) {
    checkFlag('compiler.config', 'skipFsdpHooks', value);
    skipFsdpHooks = value;
  },
});
