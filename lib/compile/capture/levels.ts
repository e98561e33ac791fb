/**
 * The two levels at which ops are recorded. The front graph has the calls of the program, which run
 * through autograd and DTensor again; the lowered graph has what reaches the backend: ops on local
 * tensors, collectives, and the ops of gradients.
 */
import { type Backend, swapBackend } from '../../core/backend.js';
import { runDeferred } from '../../core/deferred.js';
import type { Layer } from '../../core/dispatch.js';
import { layers } from '../../core/hooks.js';
import type { AnyOp } from '../../core/op.js';
import { runFake } from '../../eager/fake-backend.js';
import { recordedEffects, recordedState, recordedValues } from './effects.js';
import { recordState } from './op-facts.js';
import type { Recorder } from './recorder.js';

/** Runs `fn`; the ops that it calls go to the recorder, at its level. */
export function recording<T>(recorder: Recorder, fn: () => T): T {
  runDeferred(null);
  return recorder.level === 'lowered'
    ? recordingLowered(recorder, fn)
    : recordingFront(recorder, fn);
}

function recordingFront<T>(recorder: Recorder, fn: () => T): T {
  const { autograd, entry } = layers;
  let inside = false;
  const front: Layer = (op, inputs, params, into) => {
    if (inside) return autograd(op, inputs, params, into);
    const operands = inputs.map((t) => recorder.valueOf(t));
    if (into !== null) recorder.valueOf(into);
    inside = true;
    let outputs: Tensors;
    try {
      outputs = autograd(op, inputs, params, into);
    } finally {
      inside = false;
    }
    recorder.regions.withPolicy(op, inputs, into, () =>
      recorder.record(op, inputs, params, into, outputs, operands),
    );
    return outputs;
  };
  const recorded = recordedBackend(recorder, runFakeDistributed, () => inside);
  const install = (): Backend => {
    layers.autograd = front;
    if (entry === autograd) layers.entry = front;
    return swapBackend(recorded);
  };
  const remove = (before: Backend): void => {
    layers.autograd = autograd;
    layers.entry = entry;
    swapBackend(before);
  };
  return installed(recorder, install, remove, () => {
    const result = fn();
    if (recorder.borrowed.hasDisposed)
      recorder.unsupported('dispose() was called on a tensor that the function did not make');
    return result;
  });
}

/** Runs `fn` with a recorder in place, which the functions install and remove. */
function installed<T>(
  recorder: Recorder,
  install: () => Backend,
  remove: (before: Backend) => void,
  fn: () => T,
): T {
  const before = install();
  const { outside } = recorder;
  recorder.outside = (make) => {
    remove(before);
    try {
      return make();
    } finally {
      install();
    }
  };
  try {
    return fn();
  } finally {
    recorder.outside = outside;
    remove(before);
  }
}

type Tensors = ReturnType<Layer>;

function recordingLowered<T>(recorder: Recorder, fn: () => T): T {
  const run: Layer = (op, inputs, params, into) => {
    const parts = partsOf(op);
    if (parts !== null) {
      if (recorder.isWholeStep) recordState(recorder, op, params);
      return [...parts(inputs, params)];
    }
    const operands = inputs.map((t) => recorder.valueOf(t));
    if (into !== null) recorder.valueOf(into);
    const outputs = runFake(op, inputs, params, into);
    recorder.record(op, inputs, params, into, outputs, operands);
    return outputs;
  };
  const recorded = recordedBackend(recorder, run, () => false);
  return installed(recorder, () => swapBackend(recorded), swapBackend, fn);
}

/** What an op without a kernel is made of below autograd; null for an op that is a node itself. */
const partsOf = ({ compute, parts, traits }: AnyOp): AnyOp['parts'] =>
  traits.includes('placement') ? compute : parts;

/** Runs shape rules. Changes of placement run themselves, so that local shards get their sizes. */
const runFakeDistributed: Layer = (op, inputs, params, into) =>
  op.compute !== null && op.traits.includes('placement')
    ? op.compute(inputs, params)
    : runFake(op, inputs, params, into);

/** `isInside`: whether an op that is being recorded runs, so that its parts are not recorded. */
function recordedBackend(recorder: Recorder, run: Layer, isInside: () => boolean): Backend {
  const { values, effects, observer } = layers.backend;
  return {
    run,
    sendsCommands: false,
    values: recordedValues(recorder, values, isInside),
    effects: recordedEffects(recorder, effects),
    capture: recordedState(recorder),
    observer,
  };
}
