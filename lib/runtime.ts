/**
 * Composition root: puts the layers together by filling the seams. Read this file first; nothing
 * else sees all.
 */
import { inspect } from 'node:util';
import { autocastState, operandConverter } from './amp/autocast.js';
import { autogradLayer } from './autograd/autograd-layer.js';
import './autograd/backward.js';
import './autograd/grad-dtype.js';
import './autograd/set-storage.js';
import { refreshViewHistory } from './autograd/view-history.js';
import { type CompileOptions, compiledModule } from './compile/compile.js';
import { ArgumentError, DeviceError } from './core/errors.js';
import { hooks, layers } from './core/hooks.js';
import { moduleCalls } from './core/module-calls.js';
import { formatTensor } from './core/print.js';
import { directEffects } from './core/set-storage.js';
import { formatShape } from './core/shape.js';
import { Storage } from './core/storage.js';
import { Tensor } from './core/tensor.js';
import { rawArray } from './core/values.js';
import { requireCuda } from './cuda/status.js';
import { loadTables } from './cuda/tables.js';
import { checkOwnVariables } from './cuda/variables.js';
import { runEager } from './eager/eager-backend.js';
import { nativeMemory, nativeValues } from './eager/memory.js';
import { writer } from './eager/submit.js';
import { type AnyModule, Module } from './nn/module.js';
import { callWithHooks } from './nn/module-hooks.js';
import { copyOp } from './ops/copy.js';
import './ops/index.js';

const { addon } = writer;
hooks.memory = nativeMemory;
hooks.refreshViewHistory = refreshViewHistory;
hooks.operands = operandConverter;
hooks.autocastState = autocastState;
hooks.prepareDevice = (device) => {
  if (device.type === 'cpu') return;
  if (device.type === 'meta')
    throw new DeviceError('meta: expected a device with memory, got meta, which has none', {
      device: 'meta',
    });
  requireCuda(device);
  checkOwnVariables();
  loadTables(addon, device.code);
};
hooks.copyOp = copyOp;
moduleCalls.withHooks = callWithHooks as typeof moduleCalls.withHooks;
layers.entry = autogradLayer;
layers.autograd = autogradLayer;
layers.backend = {
  run: runEager,
  sendsCommands: true,
  values: nativeValues,
  effects: directEffects,
  capture: null,
  observer: null,
};

Object.defineProperty(Module.prototype, 'compile', {
  value(this: AnyModule, options?: CompileOptions) {
    const call = (...args: unknown[]) => callWithHooks(this, args as never[]);
    this.compiled = compiledModule(this, call, options);
  },
});

Object.defineProperty(Tensor.prototype, inspect.custom, {
  value(this: Tensor) {
    return formatTensor(this, (t) => (t.numel() === 0 ? rawArray(t.dtype, 0) : t.toTypedArray()));
  },
});
Object.defineProperty(Tensor.prototype, 'toString', {
  value(this: Tensor) {
    return textOf(this);
  },
});

/** The text of a tensor for a program, which a graph cannot repeat: it has the values. */
function textOf(t: Tensor): string {
  const { capture } = layers.backend;
  if (capture !== null && t.device.type !== 'meta')
    capture.unsupported(`the text of a tensor, ${t.dtype.name}${formatShape(t.sizes)}, was made`);
  return inspect(t);
}

/**
 * Arithmetic on a tensor of one element takes its value; on others it would be NaN. `a + b` would
 * join two texts.
 */
Object.defineProperty(Tensor.prototype, Symbol.toPrimitive, {
  value(this: Tensor, hint: 'string' | 'number' | 'default') {
    if (hint === 'string') return textOf(this);
    if (hint === 'default')
      throw new ArgumentError(
        `a tensor of shape ${formatShape(this.sizes)} has no operators: write a.add(b) for a + ` +
          'b, a.eq(b) for a == b, and a template or a.toString() for a text',
        { op: 'add', given: this.sizes },
      );
    if (this.numel() === 1) return Number(this.item());
    throw new ArgumentError(
      `a tensor of shape ${formatShape(this.sizes)} is no number: use its methods, ` +
        'such as t.mul(2) and t.gt(0)',
      { op: 'Number', given: this.sizes },
    );
  },
});
Object.defineProperty(Tensor.prototype, 'toJSON', {
  value(this: Tensor) {
    return this.tolist();
  },
});

/**
 * `assert.deepEqual` compares and prints the fields of tensors, not their values: equal tensors would
 * differ. It asks for this tag; other comparisons, which do so too, have testers for tensors.
 */
Object.defineProperty(Storage.prototype, Symbol.toStringTag, {
  get(): string {
    if (!new Error().stack?.includes('node:internal/util/comparisons')) return 'Storage';
    throw new ArgumentError(
      'assert.deepEqual cannot compare tensors: use assertClose(actual, expected) of ' +
        'shardwise/testing, or compare what tolist() gives',
      { op: 'deepEqual' },
    );
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

export { addon };
