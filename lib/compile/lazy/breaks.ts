/** What ends the lazy segments of a call, for reports. */
import { callContext } from '../../core/call-context.js';
import { callSite } from '../../core/call-site.js';
import { ModulePaths } from '../capture/module-paths.js';

/** What ended a segment. */
export interface SegmentBreak {
  /** The name of the function, or of the class of the module. */
  readonly functionName: string;
  readonly reason: string;
  /** The call site in the program; empty if it is not known. */
  readonly site: string;
  /** The path of the module whose forward did it; empty outside of modules. */
  readonly path: string;
}

/** The breaks of the call that is observed; null while none is. */
let observed: SegmentBreak[] | null = null;
let paths = new ModulePaths();

/** Runs `fn`, and returns what ended the segments of the functions that it called, in order. */
export function observingBreaks<T>(fn: () => T): { result: T; breaks: readonly SegmentBreak[] } {
  const before = observed;
  const breaks: SegmentBreak[] = [];
  observed = breaks;
  paths = new ModulePaths();
  callContext.moduleObservers++;
  try {
    return { result: fn(), breaks };
  } finally {
    callContext.moduleObservers--;
    observed = before;
  }
}

/** Whether a call is observed, so that reasons are worth their words. */
export const isObserved = (): boolean => observed !== null;

/** Reports that a segment of a function ends. */
export function reportBreak(functionName: string, reason: string): void {
  observed?.push({ functionName, reason, site: callSite(), path: paths.ofCurrentModule() });
}
