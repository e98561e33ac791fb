/** Copies and conversions: copy_, clone, to, contiguous and the casts. */

import { type Device, type DeviceName, device as deviceOf } from '../core/device.js';
import { dispatchOne } from '../core/dispatch.js';
import {
  bfloat16,
  bool,
  type DType,
  type DTypeLike,
  dtypeOf,
  float16,
  float32,
  float64,
  int8,
  int16,
  int32,
  int64,
  isDtype,
  uint8,
} from '../core/dtype.js';
import { gradState } from '../core/modes.js';
import { defineOp, type Op, type OutputMeta } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { checkNumber, optionsOf, unexpected } from '../core/options.js';
import { isNonOverlappingAndDense, sameShape } from '../core/shape.js';
import { Tensor } from '../core/tensor.js';
import { dtypeOrDevice } from '../core/to-target.js';
import { collapseOperands } from './collapse.js';
import { addInPlaceMethod, addMethod } from './method.js';
import { operand, requireDtype, requireTensor, type TensorLike } from './operand.js';
import { sampleTensor } from './samples.js';
import { copyRule } from './sharding/pointwise.js';

const copyParams = {
  dtype: param.optional<DType>(),
  /** Keep the input's layout if it is dense; else row-major. */
  preserve: param.optional<boolean>(),
};
type CopyParams = ParamsOf<typeof copyParams>;

const copyOp: Op<CopyParams> = defineOp({
  name: 'copy',
  inputs: ['x'],
  outputs: ['y'],
  operands: '(x: [...s]) -> (y: [...s])',
  params: copyParams,
  doc: 'The elements, converted to another dtype if one is given, in new memory.',
  traits: ['pointwise', 'strided-output', 'overwrites', 'converts', 'passes-gradient'],
  sharding: copyRule<CopyParams>((input, { dtype }) => dtype ?? input.dtype),
  meta: ([input], { dtype, preserve }) => {
    const keeps =
      preserve === true &&
      !input.isContiguous() &&
      isNonOverlappingAndDense(input.sizes, input.strides);
    return [
      {
        shape: input.sizes,
        strides: keeps ? input.strides : null,
        dtype: dtype ?? input.dtype,
        device: input.device,
      },
    ];
  },
  lower: (command, [x], [y]) => {
    const { sizes, strides } = collapseOperands([x], y);
    command.view(x, sizes, strides[0] as number[]);
    command.outputView(y, sizes, strides[1] as number[]);
  },
  vjp: (_ctx, g) => [g], // converted to the dtype of the input
  samples: () => [
    { inputs: [sampleTensor([3, 4])], params: {} },
    { inputs: [sampleTensor([3, 4]).t()], params: { dtype: float64 } },
    { inputs: [sampleTensor([5], { high: 9 })], params: { dtype: int32 } },
  ],
});

const transferParams = {
  device: param.value<Device>(),
  /**
   * Whether the result is in pinned host memory; `device` is then the CPU, also for an input on the
   * CPU.
   */
  pinned: param.optional<boolean>(),
};
type TransferParams = ParamsOf<typeof transferParams>;

/** Copies bytes; the input is dense here, so its bytes are contiguous. */
const toDeviceOp: Op<TransferParams> = defineOp({
  name: 'toDevice',
  inputs: ['x'],
  outputs: ['y'],
  params: transferParams,
  doc: 'The same elements in the memory of another device, or in pinned memory.',
  sharding: copyRule<TransferParams>((input) => input.dtype),
  kernel: null,
  meta: ([{ sizes: shape, strides, dtype }], { device }) => [{ shape, strides, dtype, device }],
  move: ([x], params, memory, into) => {
    x.liveStorage('toDevice');
    memory.checkReach(x.device, params.device);
    const [meta] = toDeviceOp.meta([x], params) as [OutputMeta];
    if (into !== null) memory.checkInto('copy_', into, meta);
    const y = into ?? memory.allocate('toDevice', meta, params.pinned);
    memory.copyBytes(x, y);
    return y;
  },
  vjp: (ctx, g) => [convert(g, g.dtype, ctx.inputDevice(0), false)],
  samples: () => [],
});

/** The tensor in dense memory; itself if it is dense. */
function dense(input: Tensor): Tensor {
  return isNonOverlappingAndDense(input.sizes, input.strides)
    ? input
    : dispatchOne(copyOp, [input], {});
}

/** A copy in pinned host memory; the dtype is converted on the input's device. */
export function toPinned(input: Tensor, dtype: DType): Tensor {
  const source =
    input.dtype === dtype ? input : dispatchOne(copyOp, [input], { dtype, preserve: true });
  return dispatchOne(toDeviceOp, [dense(source)], { device: deviceOf('cpu'), pinned: true });
}

/**
 * The tensor in another dtype or on another device; itself if nothing changes and no copy is
 * forced.
 */
function convert(
  input: Tensor,
  dtype: DType,
  device: Device,
  forceCopy: boolean,
  nonBlocking = false,
): Tensor {
  if (input.device === device) {
    if (!forceCopy && input.dtype === dtype) return input;
    return dispatchOne(copyOp, [input], { dtype, preserve: true });
  }
  if (nonBlocking && device.type === 'cpu') return toPinned(input, dtype);
  const moved = dispatchOne(toDeviceOp, [dense(input)], { device });
  return moved.dtype === dtype ? moved : dispatchOne(copyOp, [moved], { dtype, preserve: true });
}

/** Options of {@link Tensor.to}. */
export interface ToOptions {
  /** Element type, or its name; the tensor's own by default. */
  dtype?: DTypeLike;
  /** The device of the result, such as `'cpu'` or `'cuda:1'`; the tensor's own by default. */
  device?: DeviceName | Device;
  /** Copy even if nothing changes. False by default. */
  copy?: boolean;
  /**
   * Copy asynchronously on the GPU; a result on the CPU is in pinned memory. Ops that use the
   * result wait for the copy, as after every copy. False by default.
   */
  nonBlocking?: boolean;
}

addMethod(
  'to',
  function (
    target: DTypeLike | DeviceName | Device | Tensor | ToOptions,
    more?: DTypeLike | ToOptions,
  ) {
    const { dtype, device, copy, nonBlocking } = toTarget(
      target,
      isDtype(more) ? { dtype: more } : more,
    );
    return convert(
      this,
      requireDtype(dtype, 'to') ?? this.dtype,
      device === undefined ? this.device : deviceOf(device),
      copy === true,
      nonBlocking === true,
    );
  },
);

const TO_OPTIONS = 'dtype device copy nonBlocking';

function toTarget(
  target: DTypeLike | DeviceName | Device | Tensor | ToOptions,
  given: ToOptions = {},
): ToOptions {
  const more = optionsOf('to', given, TO_OPTIONS);
  if (target instanceof Tensor) return { ...more, dtype: target.dtype, device: target.device };
  const one = dtypeOrDevice(target);
  if (one !== null) return { ...more, ...one };
  if (target === null || typeof target !== 'object')
    throw unexpected('to', 'target', 'a dtype, a device, a tensor, or an object of both', target);
  return optionsOf('to', target as ToOptions, TO_OPTIONS);
}

const casts = {
  float: float32,
  double: float64,
  half: float16,
  bfloat16,
  int: int32,
  long: int64,
  short: int16,
  char: int8,
  byte: uint8,
  bool,
} as const;
for (const [name, dtype] of Object.entries(casts)) {
  addMethod(name, function () {
    return convert(this, dtype, this.device, false);
  });
}
addMethod('type', function (dtype?: DTypeLike) {
  return dtype === undefined
    ? this.dtype
    : convert(this, dtypeOf(dtype, 'type'), this.device, false);
});
addMethod('typeAs', function (other: Tensor) {
  requireTensor(other, 'typeAs', 'other');
  return convert(this, other.dtype, other.device, false);
});
addMethod('cpu', function () {
  return convert(this, this.dtype, deviceOf('cpu'), false);
});
addMethod('cuda', function (index = 0, options: { nonBlocking?: boolean } = {}) {
  checkNumber('cuda', 'index', index, { from: 0, to: 999, whole: true });
  return convert(
    this,
    this.dtype,
    deviceOf(`cuda:${index}`),
    false,
    optionsOf('cuda', options, 'nonBlocking').nonBlocking === true,
  );
});
addMethod('clone', function () {
  return clone(this);
});
addMethod('contiguous', function () {
  // The local shard of a distributed tensor may have another layout than the whole tensor.
  const dense =
    this.isContiguous() && (this.sharding === null || this.sharding.local.isContiguous());
  return dense ? this : dispatchOne(copyOp, [this], {});
});
/** Whether both are dense with their elements in the same order. */
function sameRun(a: Tensor, b: Tensor): boolean {
  return (
    a.dtype === b.dtype &&
    sameShape(a.sizes, b.sizes) &&
    sameShape(a.strides, b.strides) &&
    isNonOverlappingAndDense(a.sizes, a.strides)
  );
}

/** Shared, so that a call without options allocates none. */
const NO_OPTIONS: { nonBlocking?: boolean } = Object.freeze({});

addInPlaceMethod('copy_', function (source: TensorLike, options: typeof NO_OPTIONS = NO_OPTIONS) {
  const { nonBlocking = false } =
    options === NO_OPTIONS ? NO_OPTIONS : optionsOf('copy_', options, 'nonBlocking');
  const from = operand(source, this.device, 'copy_');
  if (from.storage === null) return this.fill_(from.scalarValue);
  const target = overwritten(this);
  if (from.device !== this.device && sameRun(from, this)) {
    dispatchOne(toDeviceOp, [from], { device: this.device }, target);
    return this;
  }
  const near =
    from.device === this.device ? from : convert(from, from.dtype, this.device, false, nonBlocking);
  const seen = sameShape(near.sizes, this.sizes) ? near : near.expand(this.sizes);
  dispatchOne(copyOp, [seen], { dtype: this.dtype }, target);
  return this;
});

/**
 * The target of an in-place op that does not read the old values. A recorded plain tensor is
 * written as a view of itself, so that it keeps its history; the overwritten values get zeros as
 * gradient. @internal
 */
export function overwritten(t: Tensor): Tensor {
  return gradState.recording && t.base === null && t.sharding === null && t.gradFn !== null
    ? t.view(t.sizes)
    : t;
}

/**
 * Copies a result that was computed from a tensor into this tensor; the result already has its
 * history. @internal
 */
export function copyBack(target: Tensor, result: Tensor): Tensor {
  return dispatchOne(copyOp, [result], { dtype: target.dtype }, target);
}

/**
 * A copy of the elements in new memory, in the same layout if it is dense. Shapes and dtypes: any,
 * kept. Gradient: yes.
 *
 * @see PyTorch `torch.clone`
 */
export function clone(input: Tensor): Tensor {
  requireTensor(input, 'clone');
  return dispatchOne(copyOp, [input], { preserve: true });
}

/** A copy in new memory in row-major order, whatever the layout of the input. @internal */
export function copyRowMajor(input: Tensor): Tensor {
  return dispatchOne(copyOp, [input], {});
}

export { copyOp };

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * The tensor in another dtype, on another device, or in and on those of another tensor; itself
     * if nothing changes, unless `copy` is set. Shapes: kept, and the layout if it is dense.
     * Dtypes: any; conversion to integers truncates towards zero (out of range it is not defined),
     * that to bool gives whether an element is not 0. Gradient: yes, in this dtype and on this
     * device.
     *
     * @throws DeviceError for an unknown name, and for a device that is not there
     * @see PyTorch `torch.Tensor.to`
     * @example
     * tensor([1.5, 2.5]).to(int64); // [1, 2]
     * ones([2]).to('cuda').shape; // [2]
     */
    to(
      target: DTypeLike | DeviceName | Device | Tensor | ToOptions,
      options?: DTypeLike | ToOptions,
    ): Tensor;
    /** The dtype. */
    type(): DType;
    /** The tensor in another dtype, as {@link Tensor.to}. @see PyTorch `torch.Tensor.type` */
    type(dtype: DTypeLike): Tensor;
    /** In the dtype and on the device of `other`, as {@link Tensor.to}. Gradient: yes. */
    typeAs(other: Tensor): Tensor;
    /**
     * As float32; itself if it is. Gradient: yes, as of all casts to floating types; see {@link
     * Tensor.to}.
     */
    float(): Tensor;
    /** As float64; itself if it is. Gradient: yes. */
    double(): Tensor;
    /** As float16, to nearest; itself if it is. Gradient: yes. */
    half(): Tensor;
    /** As bfloat16, to nearest; itself if it is. Gradient: yes. */
    bfloat16(): Tensor;
    /**
     * As int32, towards zero; itself if it is. Gradient: none, as of all casts to integers; see
     * {@link Tensor.to}.
     */
    int(): Tensor;
    /** As int64, towards zero; itself if it is. Gradient: none. */
    long(): Tensor;
    /** As int16, towards zero; itself if it is. Gradient: none. */
    short(): Tensor;
    /** As int8, towards zero; itself if it is. Gradient: none. */
    char(): Tensor;
    /** As uint8, towards zero; itself if it is. Gradient: none. */
    byte(): Tensor;
    /** As bool: true for all but 0, for NaN too; itself if it is. Gradient: none. */
    bool(): Tensor;
    /** On the CPU, waiting for the copy; itself if it is there. Gradient: yes. */
    cpu(): Tensor;
    /**
     * On a CUDA device, the first by default; itself if it is there. Gradient: yes. @throws
     * DeviceError if the device is not there
     */
    cuda(index?: number, options?: { nonBlocking?: boolean }): Tensor;
    /**
     * A copy in new memory. The same as {@link clone}.
     *
     * @example
     * const t = zeros([2]);
     * t.clone().add_(1);
     * t; // [0, 0]
     */
    clone(): Tensor;
    /**
     * The tensor in row-major layout; itself if it is already. Gradient: yes. @see PyTorch
     * `torch.Tensor.contiguous`
     * @example zeros([2, 3]).t().contiguous().isContiguous(); // true
     */
    contiguous(): Tensor;
    /**
     * Copies `source`, broadcast and converted as by {@link Tensor.to}, into this tensor's memory.
     * Between a GPU and pinned memory of the same layout the copy is asynchronous; with
     * `nonBlocking` (false by default) also if elements are converted on their way to the CPU. Ops
     * that use the tensors wait for the copy in any case. Gradient: source; 0 for the overwritten
     * values, none for those of a distributed tensor.
     *
     * @throws ShapeError unless the source broadcasts to this shape; ArgumentError for a number
     * that an integer dtype cannot hold, and for a value that is neither a tensor nor a number;
     * InPlaceError for a leaf that requires a gradient, or elements that share memory
     * @see PyTorch `torch.Tensor.copy_`
     * @example
     * const t = zeros([2]);
     * t.copy_(tensor([1, 2]));
     * t; // [1, 2]
     */
    copy_(source: TensorLike, options?: { nonBlocking?: boolean }): this;
  }
}
