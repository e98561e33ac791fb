/**
 * The fake backend: runs shape rules and no kernels. Its tensors have a shape, a dtype and a device
 * but no memory. FakeTensorMode and compile use it for all tensors, eager mode for those on `meta`.
 */
import { META_ADVICE } from '../core/device.js';
import { DeviceError } from '../core/errors.js';
import { hooks, layers } from '../core/hooks.js';
import type { AnyOp, OutputMeta } from '../core/op.js';
import { contiguousStrides, formatShape, numelOf } from '../core/shape.js';
import { FAKE_HANDLE, Storage } from '../core/storage.js';
import { Tensor } from '../core/tensor.js';
import { checkInto } from './check-into.js';

/** A tensor of this metadata without memory. */
export function fakeTensor({ shape, strides, dtype, device }: OutputMeta): Tensor {
  const nbytes = numelOf(shape) * dtype.itemsize;
  const observer = device.type === 'meta' ? null : layers.backend.observer;
  const storage = observer?.make({ shape, dtype, device }, nbytes) ?? new Storage(device, nbytes);
  storage.handle = FAKE_HANDLE;
  return new Tensor(shape, strides ?? contiguousStrides(shape), 0, dtype, device, storage);
}

/** A tensor without memory that has the shape, strides, offset and leaf flag of `t`. */
export function fakeLike(t: Tensor): Tensor {
  const { sizes: shape, strides, dtype, device } = t;
  const fake = fakeTensor({ shape, strides, dtype, device });
  if (t.storage !== null && fake.storage !== null) fake.storage.nbytes = t.storage.nbytes;
  fake.storageOffset = t.storageOffset;
  fake.strides = t.strides;
  fake.leafRequiresGrad = t.isTracked;
  return fake;
}

/** Runs an op: computes the metadata of its outputs. */
export function runFake(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  into: Tensor | null,
): Tensor[] {
  if (op.view !== null) {
    const input = inputs[0] as Tensor;
    const { shape, strides, offset, dtype = input.dtype } = op.view(input, params);
    return [new Tensor(shape, strides, offset, dtype, input.device, input.liveStorage(op.name))];
  }
  const metas = op.meta(inputs, params);
  if (into === null) return metas.map(fakeTensor);
  checkInto(op.name, into, metas[0] as OutputMeta);
  return [into];
}

/** Whether an op runs on the device `meta`: what it writes is there. */
export function isOnMeta(
  inputs: readonly Tensor[],
  metas: readonly OutputMeta[],
  into: Tensor | null,
): boolean {
  const written = into ?? metas[0] ?? inputs[0];
  return written !== undefined && written.device.type === 'meta';
}

/**
 * Runs an op on the device `meta`. Copies into a tensor there do nothing; any other op refuses real
 * tensors with dims.
 *
 * @throws DeviceError for these; FreedError
 */
export function runOnMeta(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  into: Tensor | null,
): Tensor[] {
  into?.liveStorage(op.name);
  for (const t of inputs) {
    if (t.storage === null) continue;
    t.liveStorage(op.name);
    if (t.device.type !== 'meta' && t.sizes.length > 0 && op !== hooks.copyOp)
      throw new DeviceError(
        `${op.name}: expected tensors on one device, meta, got ` +
          `${t.dtype.name}${formatShape(t.sizes)} on ${t.device}. ${META_ADVICE}`,
        { op: op.name, device: String(t.device) },
      );
  }
  return runFake(op, inputs, params, into);
}

/** The error for a value of a tensor on `meta`. */
export function noValues(op: string, { dtype, sizes: shape }: Tensor): DeviceError {
  return new DeviceError(
    `${op}: expected a tensor with values, got ${dtype.name}${formatShape(shape)} on meta. ` +
      META_ADVICE,
    { op, device: 'meta' },
  );
}
