/**
 * Tracing: runs a function once on fake tensors, with everything that happens beside ops sent to
 * the tracer.
 */
import { gradMode, setGradMode } from '../autograd/grad-mode.js';
import { versionOverride } from '../autograd/version.js';
import { getDefaultDevice, setDefaultDevice } from '../core/device.js';
import { swapBackend } from '../core/dispatch.js';
import { getDefaultDtype, setDefaultDtype } from '../core/dtype.js';
import { keep } from '../core/keep.js';
import { storageSwap } from '../core/set-storage.js';
import { storageResize } from '../core/storage.js';
import type { Tensor } from '../core/tensor.js';
import { captureWatch, moduleWatch } from '../core/watch.js';
import { installValueAccess, type ValueAccess } from '../ops/construct.js';
import type { Watcher } from './guard-collector.js';
import { ambientKey } from './guards.js';
import { Tracer } from './tracer.js';

/**
 * Puts the tracer in the place of the bottom layer and of everything that is no op. Returns what
 * takes it away again.
 */
function install(tracer: Tracer, watcher: Watcher): () => void {
  const backend = swapBackend((op, given, params, into) => tracer.run(op, given, params, into));
  const values = installValueAccess(tracedValues(tracer, (...raw) => values.fromRaw(...raw)));
  const [resize, swap, version] = [storageResize.run, storageSwap.run, { ...versionOverride }];
  const [watch, saw] = [{ ...captureWatch }, moduleWatch.saw];
  recordEffects(tracer);
  moduleWatch.saw = (module) => watcher.saw(module);
  captureWatch.unsupported = (what) => tracer.unsupported(what);
  captureWatch.draws = (generator, source) => tracer.draws(generator, source);
  captureWatch.readsGrad = (t) => tracer.readsGrad(t);
  return () => {
    swapBackend(backend);
    installValueAccess(values);
    storageResize.run = resize;
    storageSwap.run = swap;
    Object.assign(versionOverride, version);
    Object.assign(captureWatch, watch);
    moduleWatch.saw = saw;
  };
}

/** Values that are written down become constants; values that are read end the graph. */
function tracedValues(tracer: Tracer, make: ValueAccess['fromRaw']): ValueAccess {
  const noValue = (t: Tensor): never =>
    tracer.unsupported(`a value of a tensor, ${t.dtype.name}[${t.shape.join(', ')}], was read`);
  return {
    fromRaw: (...raw) => tracer.freshCopy(keep(make(...raw))),
    adopt: () => tracer.unsupported('an array was adopted as a tensor'),
    readSync: noValue,
    read: noValue,
    readElement: noValue,
  };
}

/** Effects that a graph repeats on the real tensors. */
function recordEffects(tracer: Tracer): void {
  const { run: swap } = storageSwap;
  storageSwap.run = (target, source, counts) => {
    const [fake, other] = [tracer.fakeOf(target), tracer.fakeOf(source)];
    tracer.effect('set_', [fake, other], (real, next) =>
      storageSwap.run(real as Tensor, next as Tensor, counts),
    );
    tracer.leavesStorage(fake);
    swap(fake, other, counts);
  };
  storageResize.run = (storage, bytes) => {
    tracer.effect(
      `resize_${bytes}`,
      [tracer.tensorOn(storage)],
      (t) => void (t as Tensor).untypedStorage().resize_(bytes),
    );
    storage.nbytes = bytes;
  };
  versionOverride.set = (t, version) => {
    tracer.effect('setVersion', [t], (real) => versionOverride.set(real as Tensor, version));
    t.sharedVersion().value = version;
  };
  versionOverride.keep = (t) => {
    const captured = t.currentVersion;
    let version = 0;
    tracer.effect('keepVersion', [t], (real) => {
      version = (real as Tensor).currentVersion;
    });
    return () => {
      tracer.effect('restoreVersion', [t], (real) => versionOverride.set(real as Tensor, version));
      t.sharedVersion().value = captured;
    };
  };
}

/**
 * Runs `fn` on stand-ins for `inputs`, under a tracer; what it did is then in the tracer's graph.
 * @throws CompileError where it does what a graph cannot repeat
 */
export function trace<T>(
  inputs: readonly Tensor[],
  watcher: Watcher,
  fn: (fakes: readonly Tensor[], tracer: Tracer) => T,
): T {
  const tracer = new Tracer(watcher);
  const [mode, dtype, device, modes] = [
    gradMode(),
    getDefaultDtype(),
    getDefaultDevice(),
    ambientKey(),
  ];
  const remove = install(tracer, watcher);
  try {
    const result = fn(
      inputs.map((t, i) => tracer.placeholder(t, i)),
      tracer,
    );
    if (ambientKey() !== modes) tracer.unsupported('the grad mode or a default was left changed');
    if (tracer.broken !== null) throw tracer.broken;
    return result;
  } catch (error) {
    throw tracer.broken ?? error;
  } finally {
    remove();
    tracer.restore();
    setGradMode(mode);
    setDefaultDtype(dtype);
    setDefaultDevice(device);
  }
}
