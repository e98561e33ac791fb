/**
 * The eager backend: the bottom layer that runs ops now. Shape rule, output tensors, command words,
 * one native call.
 */

import type { CommandWriter, MemoryAccess } from '../core/command.js';
import { cpu, type Device, toOneDevice } from '../core/device.js';
import { DeviceError } from '../core/errors.js';
import { hooks } from '../core/hooks.js';
import type { AnyOp, OutputMeta } from '../core/op.js';
import { currentRuntime, processRuntime } from '../core/rank-runtime.js';
import { contiguousStrides, formatShape, isContiguousLayout, numelOf } from '../core/shape.js';
import { FAKE_HANDLE, Storage } from '../core/storage.js';
import { Tensor } from '../core/tensor.js';
import { overlaps, overlapsPartly } from './aliasing.js';
import { history, recordStorages } from './allocation-history.js';
import { checkInto } from './check-into.js';
import { fakeTensor, isOnMeta, noValues, runOnMeta } from './fake-backend.js';
import { allocateNow, allocatePinned, readBytesSync, writeBytes } from './memory.js';
import { nativeCall, streamOf, submitCommand, writer } from './submit.js';

const kernelIds: number[] = [];

/** Receives the commands of ops instead of the addon: see {@link recordCommands}. */
export interface CommandSink {
  /** A command in the order of execution. Its outputs are tensors without memory. */
  command(
    op: AnyOp,
    kernel: number,
    device: Device,
    inputs: readonly Tensor[],
    outputs: readonly Tensor[],
    params: object,
  ): void;
  /** Called for what is no command, such as a copy between devices. Throws. */
  refuse(what: string): never;
}

let sink: CommandSink | null = null;

/**
 * Runs `fn`; the commands of the ops that it runs by {@link runEager} go to `to`. Tensors have a
 * storage, but no memory.
 */
export function recordCommands<T>(to: CommandSink, fn: () => T): T {
  const before = sink;
  sink = to;
  try {
    return fn();
  } finally {
    sink = before;
  }
}

/** Runs an op; the last of the dispatcher's layers. */
export function runEager(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  into: Tensor | null,
): Tensor[] {
  if (op.view !== null) return [runView(op, inputs[0] as Tensor, params)];
  if (op.compute !== null) return runComposed(op, inputs, params);
  if (op.move !== null) return [op.move(inputs, params, memory, into)];
  const metas = op.meta(inputs, params);
  if (isOnMeta(inputs, metas, into)) return runOnMeta(op, inputs, params, into);
  if (into !== null) return [runInto(op, inputs, params, into, metas[0] as OutputMeta)];
  const outputs: Tensor[] = [];
  const isWindowed = op.traits.includes('windowed-output');
  for (let i = 0; i < metas.length; i++) {
    const meta = metas[i] as OutputMeta;
    outputs.push(isWindowed ? memory.allocate(op.name, meta) : allocateOutput(meta));
  }
  let operands = inputs;
  if (op.updates >= 0) {
    const base = inputs[op.updates] as Tensor;
    const output = outputs[0] as Tensor;
    launch(hooks.copyOp, [base], [output], {});
    operands = inputs.filter((_, i) => i !== op.updates);
  }
  launch(op, operands, outputs, params);
  return outputs;
}

/** Ops of users and collectives give their shapes alone on `meta`; shards are wrapped anywhere. */
function runComposed(op: AnyOp, inputs: readonly Tensor[], params: object): Tensor[] {
  const compute = op.compute as NonNullable<AnyOp['compute']>;
  return inputs.some((t) => t.device.type === 'meta') && !op.traits.includes('placement')
    ? runOnMeta(op, inputs, params, null)
    : compute(inputs, params);
}

/** Another window on the storage of `input`. */
function runView(op: AnyOp, input: Tensor, params: object): Tensor {
  const storage = input.liveStorage(op.name);
  const rule = op.view as NonNullable<AnyOp['view']>;
  const { shape, strides, offset, dtype = input.dtype } = rule(input, params);
  return new Tensor(shape, strides, offset, dtype, input.device, storage, 0, input);
}

/** What ops without a kernel of their own allocate and copy with. */
const memory: MemoryAccess = {
  allocate(op, { shape, strides, dtype, device }, pinned = false) {
    if (device.type === 'meta') return fakeTensor({ shape, strides, dtype, device });
    if (sink !== null) {
      if (pinned) sink.refuse('pinned memory');
      return withoutMemory(allocateOutput({ shape, strides, dtype, device }));
    }
    const bytes = numelOf(shape) * dtype.itemsize;
    const storage = pinned ? allocatePinned(bytes) : allocateNow(device, bytes);
    const t = new Tensor(shape, strides ?? contiguousStrides(shape), 0, dtype, device, storage);
    if (storage.token !== null) {
      const { token } = storage;
      storage.token = null;
      storage.giveToken(t, token);
    }
    if (history.isRecorded) recordStorages(op, [t]);
    return t;
  },
  copy(from, to) {
    if (to.device.type === 'meta') return;
    launch(hooks.copyOp, [from], [to], {});
  },
  copyBytes(from, to) {
    sink?.refuse('a copy between devices');
    if (to.device.type === 'meta') return;
    if (from.device.type === 'meta') throw noValues('to', from);
    const { itemsize } = from.dtype;
    const bytes = from.numel() * itemsize;
    if (from.device.runtime !== to.device.runtime) {
      copyNow(from, to, bytes);
      return;
    }
    const [source, target] = [from.liveStorage('toDevice'), to.liveStorage('toDevice')];
    const [read, written] = [from.storageOffset * itemsize, to.storageOffset * itemsize];
    // The CUDA side drives the copy, in either direction.
    const stream = streamOf(to.device.type === 'cuda' ? to.device : from.device);
    nativeCall(
      () => writer.addon.copyBytes(target.handle, written, source.handle, read, bytes, stream),
      'toDevice',
    );
  },
  checkReach: checkOwners,
  checkInto,
};

/**
 * Between the main program and a rank: the streams of ranks must not wait for what each of them
 * reads.
 */
function copyNow(from: Tensor, to: Tensor, bytes: number): void {
  if (bytes === 0) return;
  const values = new Uint8Array(bytes);
  readBytesSync(from, values);
  writeBytes(to, values);
}

/**
 * Refuses copies of tensors of another running rank of this process: their values may depend on
 * ranks that have not run yet.
 */
function checkOwners(from: Device, to: Device): void {
  if (from.runtime === to.runtime) return;
  const own = currentRuntime();
  const strange = from.runtime.isRunning
    ? from
    : to.runtime.isRunning && to.runtime !== own
      ? to
      : null;
  if (strange === null) return;
  const what =
    `${own.label ?? 'the main program'} ` +
    `${to.runtime === own ? `reads a tensor on ${from}` : `writes into a tensor on ${to}`}`;
  const advice = [from.runtime, to.runtime, own].includes(processRuntime)
    ? 'Until the ranks have ended, values leave them only by what their functions return: ' +
      'await launch() first.'
    : 'Ranks that share a process have memory of their own: values go from one to another by ' +
      'collectives, or by send and recv.';
  throw new DeviceError(`copy: ${what}. ${advice}`, { op: 'copy', device: String(strange) });
}

/**
 * Of an operand on another device, which an op may take as an index or a number: those of another
 * rank, or from around the ranks, none may.
 */
function checkOwner(op: AnyOp, operand: Tensor, device: Device): void {
  if (operand.storage === null || operand.device.runtime === device.runtime) return;
  const given = `${operand.dtype}${formatShape(operand.sizes)} on ${operand.device}`;
  throw new DeviceError(
    `${op.name}: expected tensors on one device, ${device}, got ${given}. ` +
      `${toOneDevice(device, operand.device)}`,
    {
      op: op.name,
      device: String(operand.device),
    },
  );
}

function allocateOutput(meta: OutputMeta): Tensor {
  const storage = new Storage(meta.device, numelOf(meta.shape) * meta.dtype.itemsize);
  return new Tensor(
    meta.shape,
    meta.strides ?? contiguousStrides(meta.shape),
    0,
    meta.dtype,
    meta.device,
    storage,
  );
}

function launch(
  op: AnyOp,
  inputs: readonly Tensor[],
  outputs: readonly Tensor[],
  params: object,
): void {
  let kernel = kernelIds[op.id];
  if (kernel === undefined) kernel = kernelIds[op.id] = writer.kernelId(op);
  const device = outputs.length > 0 ? (outputs[0] as Tensor).device : firstDevice(inputs);
  for (let i = 0; i < inputs.length; i++)
    if ((inputs[i] as Tensor).device !== device) checkOwner(op, inputs[i] as Tensor, device);
  if (sink !== null) {
    sink.command(op, kernel, device, inputs, outputs, params);
    outputs.forEach(withoutMemory);
    return;
  }
  writer.words.begin(op.name);
  writeOperands(writer.words, op, inputs, outputs, params);
  submitCommand(op, kernel, device, inputs, outputs);
}

/** Marks a tensor that no command of the addon will allocate. */
function withoutMemory(t: Tensor): Tensor {
  const storage = t.storage as Storage;
  if (storage.handle === 0) storage.handle = FAKE_HANDLE;
  return t;
}

/** Writes the operands of a kernel and its parameters. */
export function writeOperands(
  command: CommandWriter,
  op: AnyOp,
  inputs: readonly Tensor[],
  outputs: readonly Tensor[],
  params: object,
): void {
  if (op.lower !== null) op.lower(command, inputs, outputs, params);
  else lowerAsIs(command, inputs, outputs);
  op.params.append?.(command, params);
}

function lowerAsIs(
  command: CommandWriter,
  inputs: readonly Tensor[],
  outputs: readonly Tensor[],
): void {
  for (let i = 0; i < inputs.length; i++) command.tensor(inputs[i] as Tensor);
  for (let i = 0; i < outputs.length; i++) command.output(outputs[i] as Tensor);
}

function firstDevice(inputs: readonly Tensor[]): Device {
  for (const t of inputs) if (t.storage !== null) return t.device;
  return cpu;
}

/**
 * In-place and `out` variants: the kernel writes into existing memory where it can, else a
 * temporary is copied over.
 */
function runInto(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  into: Tensor,
  meta: OutputMeta,
): Tensor {
  checkInto(op.name, into, meta);
  // A pointwise kernel may overwrite its input, element by element; any other would read its own
  // results.
  const conflicts =
    op.pointwise !== null || op.traits.includes('pointwise') ? overlapsPartly : overlaps;
  const operands = inputs.map((t, i) =>
    t.storage !== null && i !== op.updates && conflicts(t, into) ? cloneNow(t) : t,
  );
  if (op.updates >= 0 && (writesAnyLayout(op) || isContiguousLayout(into.sizes, into.strides))) {
    const base = inputs[op.updates] as Tensor;
    if (base !== into)
      launch(hooks.copyOp, [overlapsPartly(base, into) ? cloneNow(base) : base], [into], {});
    launch(
      op,
      operands.filter((_, i) => i !== op.updates),
      [into],
      params,
    );
  } else if (
    op.pointwise !== null ||
    writesAnyLayout(op) ||
    (into.dtype === meta.dtype && isContiguousLayout(into.sizes, into.strides))
  ) {
    launch(op, operands, [into], params);
  } else {
    const temporary = runEager(op, operands, params, null)[0] as Tensor;
    launch(hooks.copyOp, [temporary], [into], {});
    temporary.dispose();
  }
  return into;
}

function writesAnyLayout(op: AnyOp): boolean {
  return op.traits.includes('strided-output');
}

function cloneNow(t: Tensor): Tensor {
  const copy = allocateOutput({ shape: t.sizes, strides: null, dtype: t.dtype, device: t.device });
  launch(hooks.copyOp, [t], [copy], {});
  return copy;
}
