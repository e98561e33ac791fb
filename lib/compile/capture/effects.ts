/** What happens beside ops while a function is captured: values, effects, draws, reads of state. */
import type { CaptureHooks, StorageEffects, ValueAccess } from '../../core/backend.js';
import { keep } from '../../core/scope.js';
import type { Tensor } from '../../core/tensor.js';
import { fakeTensor } from '../../eager/fake-backend.js';
import { clone } from '../../ops/copy.js';
import type { EffectName, RunValue } from '../graph/effects.js';
import { needWholeStep, startBackward } from './backward.js';
import { recordFork, recordSeed } from './draws.js';
import { recordCall } from './functions.js';
import { refuseOpaque } from './generators.js';
import { madeMemory, recordGrad, takesOver } from './grads.js';
import { recordHook } from './hooks.js';
import { runModuleHook } from './module-hooks.js';
import { recordOpaqueHook, recordOpaqueRegistration, recordPass } from './opaque-hooks.js';
import { recordParameter, recordRequiresGrad } from './parameters.js';
import { beginAnewAfter } from './prepare.js';
import type { Recorder } from './recorder.js';
import { INSTEAD_OF_VALUES, readReason } from './refusals.js';
import { recordAgain, recordRegion } from './regions.js';
import { recordStateEffect } from './state-effects.js';
import { recordAsynchronous } from './waits.js';

/**
 * Value access in a capture: new values become constants, reading a value ends the graph. Values
 * that an op makes for itself are part of the op.
 */
export function recordedValues(
  recorder: Recorder,
  outer: ValueAccess,
  isInside: () => boolean,
): ValueAccess {
  const noValue = (t: Tensor): never => recorder.unsupported(readReason(t), INSTEAD_OF_VALUES);
  return {
    fromRaw: (...raw) => {
      const [, shape, dtype, device] = raw;
      if (isInside()) return fakeTensor({ shape, strides: null, dtype, device });
      const values = keep(outer.fromRaw(...raw));
      recorder.constant(values);
      recorder.origins.set(values, 'made');
      recorder.origins.values.set(values, raw[0]);
      return clone(values);
    },
    adopt: () => recorder.unsupported('an array was adopted as a tensor'),
    readSync: noValue,
    read: noValue,
    readElement: noValue,
  };
}

/** Effects that a graph repeats on the real tensors, by the backend in place at that time. */
export function recordedEffects(recorder: Recorder, outer: StorageEffects): StorageEffects {
  return {
    swap(target, source, counts) {
      if (recorder.epilogue.leaves.has(target)) recorder.unsupported('a new leaf got other memory');
      recorder.effect('set_', [target, source], { counts });
      outer.swap(target, source, counts);
      recorder.known.moved(target);
      recorder.origins.set(target, recorder.origins.of(source));
    },
    resize(storage, bytes) {
      recorder.effect('resize_', [recorder.tensorOn(storage)], { bytes });
      storage.nbytes = bytes;
    },
    setVersion(t, version) {
      recorder.effect('setVersion', [t], { version });
      t.sharedVersion().value = version;
    },
    keepVersion(t) {
      const captured = t.currentVersion;
      const kept = recorder.effect('keepVersion', [t]);
      return () => {
        recorder.effect('restoreVersion', [t], {}, [{ node: kept, output: 0 }]);
        t.sharedVersion().value = captured;
      };
    },
  };
}

/** What the library tells a capture. */
export function recordedState(recorder: Recorder): CaptureHooks {
  return {
    repeatsEffect: (name, operands, params) =>
      recordStateEffect(recorder, name as EffectName, operands as readonly RunValue[], params),
    originOf: (t) => (recorder.isWholeStep ? recorder.origins.of(t) : 'other'),
    countsAsReplicated: (t) => {
      if (recorder.isWholeStep && recorder.origins.of(t) === 'made')
        recorder.origins.replicated.push(recorder.valueOf(t));
    },
    madeMemory: (t) => madeMemory(recorder, t),
    takesOver: (grad) => takesOver(recorder, grad),
    keepsSaved: recorder.level === 'lowered',
    isWholeStep: recorder.isWholeStep,
    unsupported: (what) => recorder.unsupported(what),
    dependsOn: (path, read) => recorder.guards.addState(path, read),
    beginsAnewAfter: (prepare) => beginAnewAfter(recorder, prepare),
    needsWholeStep: (what) => needWholeStep(recorder, what),
    startsBackward: (name) => startBackward(recorder, name),
    runsPass: (pass) => recordPass(recorder, pass),
    applies: (fn, args, run) =>
      recorder.repeatsCalls ? recordCall(recorder, fn, args, run) : run(),
    recomputes: (region, fn, args) => recordRegion(recorder, region, fn, args),
    drawsAgain: (run) => recordAgain(recorder, run),
    registersHook: (place, hook) => recordHook(recorder, place, hook),
    callsOpaque: (hook, readsGrad) => recordOpaqueHook(recorder, hook, readsGrad),
    registersOpaque: (tensors, hook, mode) =>
      recordOpaqueRegistration(recorder, tensors, hook, mode),
    runsModuleHook: (module, run) => runModuleHook(recorder, module, run),
    usesMemory: (t) => void recorder.valueOf(t),
    setsRequiresGrad: (t, value) => recordRequiresGrad(recorder, t, value),
    createsParameter: (made, data) => recordParameter(recorder, made, data),
    draws: (generator, source) => {
      recorder.regions.checkDraw(recorder, generator);
      recorder.draws.willDraw(generator, source);
    },
    seeds: (generator, seed) => recordSeed(recorder, generator, seed),
    keepsRng: (generator) => recordFork(recorder, generator),
    changesHistory: (t, change) => {
      if (recorder.hasEpilogue && change === 'retainGrad' && !recorder.inBackward)
        recorder.epilogue.retained.add(t);
      else if (recorder.repeatsCalls) recorder.effect(change, [t]);
      else if (recorder.level !== 'front' && !(recorder.isWholeStep && recorder.isOwn(t)))
        recorder.unsupported(`${change}() was called`);
    },
    setsGrad: (t, value) => recordGrad(recorder, t, value),
    readsVersion: (t) => recorder.versions.read(recorder, t),
    readsHistory: (t) => recorder.readsHistory(t),
    readsGrad: (t) => recorder.readsGrad(t),
    readsMemory: (t, fact) => recorder.readsMemory(t, fact),
    setsAsynchronous: (t, value) => recordAsynchronous(recorder, t, value),
    usesModule: (module) => {
      recorder.guards.addModule(module);
      refuseOpaque(recorder);
    },
    usesOptimizer: (optimizer) => recorder.guards.addOptimizer(optimizer),
    outside: (make) => {
      if (recorder.distributed.size > 0)
        recorder.unsupported('state was made: pass the optimizer as an argument,');
      return recorder.outside(make);
    },
  };
}
