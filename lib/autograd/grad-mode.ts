/** The grad modes: whether ops are recorded, and inference mode. */
import { gradState } from '../core/modes.js';
import { checkFlag, checkFunction, checkSynchronous } from '../core/options.js';

let inference = false;

/** Whether operations are recorded. */
export function isGradEnabled(): boolean {
  return gradState.recording;
}

/** Whether {@link inferenceMode} is on. */
export function isInferenceMode(): boolean {
  return inference;
}

/**
 * Turns recording on or off until the next call, and returns the previous value. Use `noGrad` or
 * `enableGrad` to set it for one function.
 */
export function setGradEnabled(value: boolean): boolean {
  checkFlag('setGradEnabled', 'value', value);
  const before = gradState.recording;
  gradState.recording = value;
  return before;
}

/** Both modes as one value, one object for each combination. @internal */
export interface GradMode {
  readonly enabled: boolean;
  readonly inference: boolean;
}

const [off, on, inferenceOff, inferenceOn]: readonly GradMode[] = [false, true].flatMap((infer) =>
  [false, true].map((record) => ({ enabled: record, inference: infer })),
);

/** The current modes. @internal */
export function gradMode(): GradMode {
  const { recording } = gradState;
  return (inference ? (recording ? inferenceOn : inferenceOff) : recording ? on : off) as GradMode;
}

/** Sets both modes until the next call. @internal */
export function setGradMode(mode: GradMode): void {
  gradState.recording = mode.enabled;
  inference = mode.inference;
}

function withMode<T>(op: string, value: boolean, infer: boolean, fn: () => T): T {
  checkFunction(op, 'fn', fn);
  const before = gradState.recording;
  const beforeInference = inference;
  gradState.recording = value;
  inference = infer;
  let result: T;
  try {
    result = fn();
  } finally {
    gradState.recording = before;
    inference = beforeInference;
  }
  checkSynchronous(
    'noGrad, enableGrad and inferenceMode',
    result,
    'the mode would end at its first await',
  );
  return result;
}

/**
 * Runs `fn` without recording operations: results do not require gradients. @throws ArgumentError
 * for async functions.
 *
 * @example
 * const w = ones([2], { requiresGrad: true });
 * const y = noGrad(() => w.mul(2));
 * y.requiresGrad; // false
 */
export function noGrad<T>(fn: () => T): T {
  return withMode('noGrad', false, inference, fn);
}

/** Runs `fn` with recording on, also inside {@link noGrad}. */
export function enableGrad<T>(fn: () => T): T {
  return withMode('enableGrad', true, inference, fn);
}

/**
 * As {@link noGrad}, for results that never take part in automatic differentiation. Shardwise does
 * not enforce that: docs/differences-from-pytorch.md.
 */
export function inferenceMode<T>(fn: () => T): T {
  return withMode('inferenceMode', false, true, fn);
}
