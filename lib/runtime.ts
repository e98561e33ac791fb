/**
 * Composition root: puts the layers together and connects them to the addon. Read this file first;
 * nothing else sees all.
 */
import { inspect } from 'node:util';
import { autocastState } from './amp/autocast.js';
import { AccumulateGrad } from './autograd/accumulate-grad.js';
import { autogradLayer } from './autograd/autograd-layer.js';
import './autograd/backward.js';
import './autograd/set-storage.js';
import { type CompileOptions, compile } from './compile/compile.js';
import { addAmbientGuard } from './compile/guards.js';
import { type Device, deviceByCode } from './core/device.js';
import { installAutograd, swapBackend } from './core/dispatch.js';
import type { DType } from './core/dtype.js';
import { ArgumentError } from './core/errors.js';
import { formatTensor } from './core/print.js';
import { installStorageFinder } from './core/scope.js';
import { contiguousStrides, formatShape, type Shape } from './core/shape.js';
import { installMemory, type Storage } from './core/storage.js';
import { Tensor } from './core/tensor.js';
import { rawArray } from './core/values.js';
import { requireCuda } from './cuda/status.js';
import { loadTables } from './cuda/tables.js';
import { checkOwnVariables } from './cuda/variables.js';
import { installLiveHandles, recording, recordStorages } from './eager/allocation-history.js';
import { runEager } from './eager/eager-backend.js';
import { installTokenCounts } from './eager/gc-policy.js';
import {
  adoptArray,
  allocateNow,
  nativeMemory,
  readBytes,
  readBytesSync,
  readElement,
  readTokenCounts,
  writeBytes,
} from './eager/memory.js';
import { liveHandles } from './eager/memory-report.js';
import { connect, installDevicePreparation } from './eager/submit.js';
import { loadAddon } from './native/load.js';
import { type AnyModule, Module } from './nn/module.js';
import { callWithHooks } from './nn/module-hooks.js';
import { installValueAccess } from './ops/construct.js';
import './ops/index.js';

const addon = loadAddon();
connect(addon);
installMemory(nativeMemory);
installAutograd(autogradLayer);
addAmbientGuard(autocastState);
swapBackend(runEager);
installDevicePreparation((device) => {
  if (device.type === 'cpu') return;
  requireCuda(device);
  checkOwnVariables();
  loadTables(addon, device.code);
});
installTokenCounts(readTokenCounts);
installLiveHandles(() => liveHandles(addon));

function fresh(shape: Shape, dtype: DType, device: Device, storage: Storage): Tensor {
  return new Tensor(shape, contiguousStrides(shape), 0, dtype, device, storage);
}

installValueAccess({
  fromRaw(raw, shape, dtype, device) {
    const t = fresh(shape, dtype, device, allocateNow(device, raw.byteLength));
    if (recording) recordStorages('tensor', [t]);
    if (raw.byteLength > 0) writeBytes(t, raw);
    return t;
  },
  adopt(array, shape, dtype) {
    const here = deviceByCode(0);
    const t = fresh(shape, dtype, here, adoptArray(array, here));
    if (recording) recordStorages('fromBlob', [t]);
    return t;
  },
  readSync: readBytesSync,
  read: readBytes,
  readElement,
});

installStorageFinder(function find(value, found) {
  if (value instanceof Tensor) {
    for (const t of [value, value.gradTensor]) {
      if (!t?.storage) continue;
      const tensors = found.get(t.storage);
      if (tensors === undefined) found.set(t.storage, new Set([t]));
      else tensors.add(t);
    }
  } else if (Array.isArray(value) || value instanceof Set) {
    for (const item of value) find(item, found);
  } else if (value instanceof Map) {
    for (const item of value.values()) find(item, found);
  } else if (
    value !== null &&
    typeof value === 'object' &&
    Object.getPrototypeOf(value) === Object.prototype
  ) {
    for (const item of Object.values(value)) find(item, found);
  }
});

Object.defineProperty(Module.prototype, 'compile', {
  value(this: AnyModule, options?: CompileOptions) {
    this.compiled = compile((...args: never[]) => callWithHooks(this, args), options);
  },
});

Object.defineProperty(Tensor.prototype, inspect.custom, {
  value(this: Tensor) {
    return formatTensor(this, (t) => (t.numel() === 0 ? rawArray(t.dtype, 0) : t.toTypedArray()));
  },
});
Object.defineProperty(Tensor.prototype, 'toString', {
  value(this: Tensor) {
    return inspect(this);
  },
});
/** Arithmetic on a tensor of one element takes its value; on others it would be NaN. */
Object.defineProperty(Tensor.prototype, Symbol.toPrimitive, {
  value(this: Tensor, hint: 'string' | 'number' | 'default') {
    if (hint !== 'number') return inspect(this);
    if (this.numel() === 1) return Number(this.item());
    throw new ArgumentError(
      `a tensor of shape ${formatShape(this.shape)} is no number: use its methods, such as t.mul(2)`,
      { op: 'Number', given: this.shape },
    );
  },
});
Object.defineProperty(Tensor.prototype, 'toJSON', {
  value(this: Tensor) {
    return this.tolist();
  },
});

declare module './nn/module.js' {
  interface Module<Args extends readonly unknown[], Result> {
    /**
     * Calls of this module run its captured graph from now on; see `compile`. @throws ArgumentError
     * for an unknown backend
     */
    compile(options?: CompileOptions): void;
  }
}

export { AccumulateGrad, addon };
