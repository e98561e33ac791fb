/**
 * One attempt to capture a function for a call: as a graph that autograd runs through, or, if it
 * runs backward, as that of a whole step.
 */
import { CompileError } from '../core/errors.js';
import { type AnyFunction, type Capture, capture } from './capture/capture.js';
import { UnpreparedError } from './capture/prepare.js';
import {
  assignedError,
  assignsError,
  noWholeStep,
  StepRefusal,
  suspendedError,
  suspends,
} from './capture/refusals.js';
import { nameOf, refusalOf } from './capture-record.js';
import { freedInCapture, freedTensor } from './freed-tensor.js';
import type { GuardCollector } from './guards/guard-collector.js';
import type { CompileSettings } from './options.js';
import { captureWholeStep, type WholeStep, whyNoStep } from './step/whole-step.js';

/** What an attempt is made of. */
interface Attempt {
  readonly fn: AnyFunction;
  readonly settings: CompileSettings;
  readonly args: readonly unknown[];
  /** Begins to collect the guards of a capture. */
  readonly collect: () => GuardCollector;
  /** The earlier captures on this rank. */
  readonly others: readonly { readonly isWholeStep: boolean }[];
  /** The variable that the function was seen to assign to, if it has run to see that. */
  readonly assigned: string | null;
  readonly isProbed: boolean;
}

/** What became of an attempt; null if the function must run once before. */
interface Attempted {
  readonly collector: GuardCollector;
  readonly captured: Capture | WholeStep | CompileError | null;
}

/**
 * Captures a function, or says why it runs uncompiled.
 *
 * @throws CompileError with `fullgraph`, if the signal is aborted, and if what a capture did cannot
 * be undone; what the function throws otherwise
 */
export function attempt(of: Attempt): Attempted {
  const { fn, settings, args, assigned, isProbed } = of;
  const { fullgraph, signal } = settings;
  const collector = of.collect();
  try {
    if (suspends(fn)) throw suspendedError(nameOf(fn));
    if (assigned !== null) throw assignsError(assigned);
    if (collector.closures.mayAssignTo !== null && !isProbed && !fullgraph)
      return { collector, captured: null };
    return { collector, captured: capture(fn, args, collector, signal) };
  } catch (error) {
    const reason = undone(of, error, collector);
    const step = reason instanceof StepRefusal ? attemptStep(of, reason) : null;
    if (step !== null && !(step instanceof CompileError)) return step;
    if (fullgraph) throw step ?? reason;
    return { collector, captured: step ?? reason };
  }
}

/** Captures a function that runs backward as a whole step, or says why not. */
function attemptStep(of: Attempt, refused: StepRefusal): Attempted | CompileError {
  const { fn, settings, args, others } = of;
  const why = whyNoStep(settings, others);
  if (why !== null) return noWholeStep(refused, why);
  const collector = of.collect();
  try {
    return { collector, captured: captureWholeStep(fn, args, collector, settings.signal) };
  } catch (error) {
    return noWholeStep(refused, refusalOf(undone(of, error, collector)).reason);
  }
}

/** Undoes what a failed capture did, and returns its error. @throws what is no reason to go on */
function undone(of: Attempt, error: unknown, collector: GuardCollector): CompileError {
  const { fn, settings, args, assigned } = of;
  const { fullgraph, signal } = settings;
  collector.restore();
  if (error instanceof UnpreparedError) throw error;
  if (!(error instanceof CompileError) || signal?.aborted)
    throw freedTensor(error, nameOf(fn), args, () => freedInCapture(error, collector));
  const rebound = assigned ?? collector.closures.reboundVariable();
  if (rebound !== assigned && !fullgraph) throw assignedError(rebound as string);
  return error;
}
