/**
 * Calls that change or read state outside of tensors, which a graph would keep as it was at its
 * capture.
 */
import { layers } from './hooks.js';

/** Ends a capture in progress: `Adam.loadStateDict() was called`. @internal */
export function reportCall(owner: object, method: string): void {
  layers.backend.capture?.unsupported(callOf(owner, method));
}

const callOf = (owner: object, method: string): string =>
  `${method}() of ${owner.constructor.name} was called`;

/** As {@link reportCall}, but for captures of whole steps, which have the state as tensors. @internal */
export function reportCallOutsideSteps(owner: object, method: string): void {
  layers.backend.capture?.needsWholeStep(callOf(owner, method));
}

/** As {@link reportUse}, but for captures of whole steps, which run what uses it. @internal */
export function reportUseOutsideSteps(call: string): void {
  if (layers.backend.capture?.isWholeStep !== true) reportUse(call);
}

/** Ends a capture in progress before `call` does anything: `launch() was called`. @internal */
export function reportUse(call: string): void {
  layers.backend.capture?.unsupported(`${call}() was called`);
}
