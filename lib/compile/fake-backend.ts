/**
 * The fake backend: runs shape rules and no kernels. Its tensors have a shape, a dtype and a device
 * but no memory.
 */
import { ShapeError } from '../core/errors.js';
import type { AnyOp, OutputMeta } from '../core/op.js';
import { contiguousStrides, formatShape, numelOf, sameShape } from '../core/shape.js';
import { FAKE_HANDLE, Storage } from '../core/storage.js';
import { Tensor } from '../core/tensor.js';
import { countingMemory } from './fake-memory.js';

/** A tensor of this metadata without memory. */
export function fakeTensor({ shape, strides, dtype, device }: OutputMeta): Tensor {
  const nbytes = numelOf(shape) * dtype.itemsize;
  const storage =
    countingMemory()?.make({ shape, dtype, device }, nbytes) ?? new Storage(device, nbytes);
  storage.handle = FAKE_HANDLE;
  return new Tensor(shape, strides ?? contiguousStrides(shape), 0, dtype, device, storage);
}

/** A tensor without memory that has the shape, strides, offset and leaf flag of `t`. */
export function fakeLike(t: Tensor): Tensor {
  const fake = fakeTensor(t);
  if (t.storage !== null && fake.storage !== null) fake.storage.nbytes = t.storage.nbytes;
  fake.storageOffset = t.storageOffset;
  fake.strides = t.strides;
  fake.leafRequiresGrad = t.requiresGrad;
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
    const { shape, strides, offset } = op.view(input, params);
    return [
      new Tensor(shape, strides, offset, input.dtype, input.device, input.liveStorage(op.name)),
    ];
  }
  const metas = op.meta(inputs, params);
  if (into === null) return metas.map(fakeTensor);
  const result = metas[0] as OutputMeta;
  if (!sameShape(result.shape, into.shape)) {
    throw new ShapeError(
      `${op.name}: the result has shape ${formatShape(result.shape)} and cannot be written ` +
        `into a tensor of shape ${formatShape(into.shape)}`,
    );
  }
  return [into];
}
