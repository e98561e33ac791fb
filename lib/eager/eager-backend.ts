/**
 * The eager backend: the bottom layer that runs ops now. Shape rule, output tensors, command words,
 * one native call.
 */
import { cpu, type Device, toOneDevice } from '../core/device.js';
import { DeviceError, DtypeError, InPlaceError, ShapeError } from '../core/errors.js';
import { currentHome, processHome } from '../core/home.js';
import type { AnyOp, OutputMeta } from '../core/op.js';
import type { KernelParam } from '../core/op-params.js';
import {
  contiguousStrides,
  formatShape,
  isContiguousLayout,
  numelOf,
  overlapsItself,
  sameShape,
} from '../core/shape.js';
import { Storage } from '../core/storage.js';
import { Tensor } from '../core/tensor.js';
import { overlaps, overlapsPartly } from './aliasing.js';
import { recording, recordStorages } from './allocation-history.js';
import { copyOp } from './copy-op.js';
import { allocateNow, allocatePinned, readBytesSync, writeBytes } from './memory.js';
import { nativeCall, streamOf, submitCommand, writer } from './submit.js';

const kernelIds: number[] = [];

/** Runs an op; the last of the dispatcher's layers. */
export function runEager(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  into: Tensor | null,
): Tensor[] {
  if (op.view !== null) return [runView(op, inputs[0] as Tensor, params)];
  if (op.compute !== null) return op.compute(inputs, params);
  const metas = op.meta(inputs, params);
  if (op.kernel === null) {
    const moved = runWithoutKernel(op, inputs, metas[0] as OutputMeta, params, into);
    if (recording && into === null) recordStorages(op.name, [moved]);
    return [moved];
  }
  if (into !== null) return [runInto(op, inputs, params, into, metas[0] as OutputMeta)];
  const outputs: Tensor[] = [];
  for (let i = 0; i < metas.length; i++) outputs.push(allocateOutput(metas[i] as OutputMeta));
  let operands = inputs;
  if (op.updates >= 0) {
    const base = inputs[op.updates] as Tensor;
    const output = outputs[0] as Tensor;
    launch(copyOp(), [base], [output], {});
    operands = inputs.filter((_, i) => i !== op.updates);
  }
  launch(op, operands, outputs, params);
  return outputs;
}

/** Another window on the storage of `input`. */
function runView(op: AnyOp, input: Tensor, params: object): Tensor {
  const storage = input.liveStorage(op.name);
  const { shape, strides, offset } = (op.view as NonNullable<AnyOp['view']>)(input, params);
  return new Tensor(shape, strides, offset, input.dtype, input.device, storage);
}

/** Ops that move or reserve memory and compute nothing. */
function runWithoutKernel(
  op: AnyOp,
  inputs: readonly Tensor[],
  meta: OutputMeta,
  params: object,
  into: Tensor | null,
): Tensor {
  if (op.traits.includes('transfer')) return transfer(inputs[0] as Tensor, meta, params, into);
  if (op.traits.includes('join')) return join(inputs, meta, params as { dim: number });
  return uninitialized(meta, params);
}

/** One copy for each input, into its window of the output. */
function join(inputs: readonly Tensor[], meta: OutputMeta, { dim }: { dim: number }): Tensor {
  const output = uninitialized(meta);
  let start = 0;
  for (const t of inputs) {
    if (t.numel() === 0) continue;
    const offset = start * (output.strides[dim] as number);
    const window = new Tensor(
      t.shape,
      output.strides,
      offset,
      meta.dtype,
      meta.device,
      output.storage,
    );
    launch(copyOp(), [t], [window], {});
    window.dispose();
    start += t.shape[dim] as number;
  }
  return output;
}

/** Memory and no kernel, pinned if asked for. */
function uninitialized(meta: OutputMeta, { pinned = false }: { pinned?: boolean } = {}): Tensor {
  const bytes = numelOf(meta.shape) * meta.dtype.itemsize;
  const storage = pinned ? allocatePinned(bytes) : allocateNow(meta.device, bytes);
  return new Tensor(meta.shape, contiguousStrides(meta.shape), 0, meta.dtype, meta.device, storage);
}

/**
 * The same bytes in other memory, given or new, in order with the streams of both devices. The
 * layouts are the same.
 */
function transfer(
  input: Tensor,
  meta: OutputMeta,
  { pinned = false }: { pinned?: boolean },
  into: Tensor | null,
): Tensor {
  const source = input.liveStorage('toDevice');
  checkHomes(input.device, meta.device);
  const { itemsize } = meta.dtype;
  const bytes = input.numel() * itemsize;
  if (into !== null) checkInto({ name: 'copy_' }, into, meta);
  const output =
    into ??
    new Tensor(
      meta.shape,
      meta.strides ?? input.strides,
      0,
      meta.dtype,
      meta.device,
      pinned ? allocatePinned(bytes) : allocateNow(meta.device, bytes),
    );
  if (input.device.home !== meta.device.home) return copyNow(input, output, bytes);
  const target = output.liveStorage('toDevice');
  // The CUDA side drives the copy, whichever way it goes.
  const driver = meta.device.type === 'cuda' ? meta.device : input.device;
  const [to, from] = [output.storageOffset * itemsize, input.storageOffset * itemsize];
  nativeCall(
    () => writer.addon.copyBytes(target.handle, to, source.handle, from, bytes, streamOf(driver)),
    'toDevice',
  );
  return output;
}

/**
 * Between the main program and a rank: the streams of ranks must not wait for what each of them
 * reads.
 */
function copyNow(from: Tensor, to: Tensor, bytes: number): Tensor {
  const values = new Uint8Array(bytes);
  if (bytes > 0) {
    readBytesSync(from, values);
    writeBytes(to, values);
  }
  return to;
}

/**
 * A rank that shares the process gives its tensors to nobody while it runs: their values may wait
 * for ranks that have yet to run.
 */
function checkHomes(from: Device, to: Device): void {
  if (from.home === to.home) return;
  const own = currentHome();
  const strange = from.home.isRunning ? from : to.home.isRunning && to.home !== own ? to : null;
  if (strange === null) return;
  const what = `${own.label ?? 'the main program'} ${to.home === own ? `reads a tensor on ${from}` : `writes into a tensor on ${to}`}`;
  const advice = [from.home, to.home, own].includes(processHome)
    ? 'Until the ranks have ended, values leave them only by what their functions return: await launch() first.'
    : 'Ranks that share a process have memory of their own: values go from one to another by collectives, or by send and recv.';
  throw new DeviceError(`copy: ${what}. ${advice}`, { op: 'copy', device: String(strange) });
}

/**
 * Of an operand on another device, which an op may take as an index or a number: those of another
 * rank, or from around the ranks, none may.
 */
function checkHome(op: AnyOp, operand: Tensor, device: Device): void {
  if (operand.storage === null || operand.device.home === device.home) return;
  const given = `${operand.dtype}${formatShape(operand.shape)} on ${operand.device}`;
  throw new DeviceError(
    `${op.name}: expected tensors on one device, ${device}, got ${given}. ${toOneDevice(device, operand.device)}`,
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
    if ((inputs[i] as Tensor).device !== device) checkHome(op, inputs[i] as Tensor, device);
  writer.words.begin(op.name);
  if (op.lower !== null) op.lower(writer.words, inputs, outputs, params);
  else lowerAsIs(inputs, outputs);
  appendParams(op, params as Record<string, never>);
  submitCommand(op, kernel, device, inputs, outputs);
}

function lowerAsIs(inputs: readonly Tensor[], outputs: readonly Tensor[]): void {
  const command = writer.words;
  for (let i = 0; i < inputs.length; i++) command.tensor(inputs[i] as Tensor);
  for (let i = 0; i < outputs.length; i++) command.output(outputs[i] as Tensor);
}

/** The kernel's parameters that `lower` has not written, in the order of its struct. */
function appendParams(op: AnyOp, params: Record<string, never>): void {
  const { appended } = op.params;
  for (let i = 0; i < appended.length; i++) {
    const { name, toKernel } = appended[i] as KernelParam;
    const value = params[name] as never;
    writer.words.param(toKernel === null ? Number(value) : toKernel(value));
  }
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
  checkInto(op, into, meta);
  // Element by element, a kernel may write over what it reads; any other reads again what it has
  // written.
  const inTheWay =
    op.pointwise !== null || op.traits.includes('pointwise') ? overlapsPartly : overlaps;
  const operands = inputs.map((t, i) =>
    t.storage !== null && i !== op.updates && inTheWay(t, into) ? cloneNow(t) : t,
  );
  if (op.updates >= 0 && (writesAnyLayout(op) || isContiguousLayout(into.shape, into.strides))) {
    const base = inputs[op.updates] as Tensor;
    if (base !== into)
      launch(copyOp(), [overlapsPartly(base, into) ? cloneNow(base) : base], [into], {});
    launch(
      op,
      operands.filter((_, i) => i !== op.updates),
      [into],
      params,
    );
  } else if (
    op.pointwise !== null ||
    writesAnyLayout(op) ||
    (into.dtype === meta.dtype && isContiguousLayout(into.shape, into.strides))
  ) {
    launch(op, operands, [into], params);
  } else {
    const temporary = runEager(op, operands, params, null)[0] as Tensor;
    launch(copyOp(), [temporary], [into], {});
    temporary.dispose();
  }
  return into;
}

function writesAnyLayout(op: AnyOp): boolean {
  return op.traits.includes('strided-output');
}

function cloneNow(t: Tensor): Tensor {
  const copy = allocateOutput({ shape: t.shape, strides: null, dtype: t.dtype, device: t.device });
  launch(copyOp(), [t], [copy], {});
  return copy;
}

function checkInto(op: Pick<AnyOp, 'name'>, into: Tensor, meta: OutputMeta): void {
  if (!sameShape(into.shape, meta.shape)) {
    throw new ShapeError(
      `${op.name}: the result has shape ${formatShape(meta.shape)} and cannot be written into a tensor of shape ${formatShape(into.shape)}`,
      {
        op: op.name,
        result: meta.shape,
        into: into.shape,
      },
    );
  }
  if (meta.dtype.category > into.dtype.category) {
    throw new DtypeError(
      `${op.name}: a result of dtype ${meta.dtype.name} cannot be written into a tensor of dtype ${into.dtype.name}`,
      {
        op: op.name,
      },
    );
  }
  if (overlapsItself(into.shape, into.strides)) {
    throw new InPlaceError(
      `${op.name}: cannot write into a tensor whose elements share memory (as after expand or unfold: shape ${formatShape(into.shape)}, strides ${formatShape(into.strides)}). clone() it first.`,
      { op: op.name },
    );
  }
}
