/**
 * `withDispatchMode`: a function of the program stands between autograd and the ops that it
 * records.
 */
import type { Layer } from '../core/dispatch.js';
import { ArgumentError } from '../core/errors.js';
import { layers } from '../core/hooks.js';
import { opByName } from '../core/op.js';
import { checkFunction, checkSynchronous, shown } from '../core/options.js';
import { Tensor } from '../core/tensor.js';
import { reportUseOutsideSteps } from '../core/unrepeatable.js';

/** A call of an op, below autograd. */
export interface DispatchedCall {
  /** The name of the op. */
  readonly op: string;
  /** Its tensors; distributed ones are whole. */
  readonly inputs: readonly Tensor[];
  /** Whether it writes into a tensor that is there. */
  readonly isInPlace: boolean;
  /** Whether its result is a view of the first input. */
  readonly isView: boolean;
  /** Runs the op. */
  run(): readonly Tensor[];
}

/**
 * Returns the results of a call: those of `call.run()`, or new tensors in their place, such as
 * `kept.detach()`. Ops that it calls itself do not come to it again.
 */
export type DispatchMode = (call: DispatchedCall) => readonly Tensor[];

/**
 * Runs `fn`; each call of an op that it makes goes to `mode`, which may count it, run it or replace
 * its results. Autograd records the call as always. Modes nest: what the inner one runs comes to
 * the outer one.
 *
 * @throws ArgumentError for what is no function, for an asynchronous `fn`, and for a mode that
 * returns no list of tensors
 * @see PyTorch `torch.utils._python_dispatch.TorchDispatchMode`
 * @example
 * const names: string[] = [];
 * library.withDispatchMode((call) => { names.push(call.op); return call.run(); }, () => model(x));
 */
export function withDispatchMode<T>(mode: DispatchMode, fn: () => T): T {
  checkFunction('withDispatchMode', 'mode', mode);
  checkFunction('withDispatchMode', 'fn', fn);
  reportUseOutsideSteps('withDispatchMode');
  const { dtensor: before, hasMode: hadMode } = layers;
  const below: Layer = before ?? ((...call) => layers.backend.run(...call));
  const layer: Layer = (op, inputs, params, into) => {
    layers.dtensor = before;
    layers.hasMode = hadMode;
    try {
      const call: DispatchedCall = {
        op: op.name,
        inputs,
        isInPlace: into !== null || op.mutates !== null,
        isView: op.view !== null,
        run: () => below(op, inputs, params, into),
      };
      return checked(mode(call));
    } finally {
      layers.dtensor = layer;
      layers.hasMode = true;
    }
  };
  layers.dtensor = layer;
  layers.hasMode = true;
  try {
    const result = fn();
    checkSynchronous('withDispatchMode', result, 'the mode would end at its first await');
    return result;
  } finally {
    layers.dtensor = before;
    layers.hasMode = hadMode;
  }
}

function checked(results: unknown): Tensor[] {
  if (Array.isArray(results) && results.every((t) => t instanceof Tensor)) return results;
  throw new ArgumentError(
    `withDispatchMode: expected mode to return a list of tensors, got ${shown(results)}. Return ` +
      'call.run() for calls that it leaves alone.',
    { op: 'withDispatchMode' },
  );
}

/** Whether there is an op of this name, of the library or of the program. */
export function hasOp(name: string): boolean {
  return typeof name === 'string' && opByName(name) !== undefined;
}
