/**
 * The tensor: metadata in JavaScript, bytes in a {@link Storage}. The files of lib/ops add the
 * methods of ops by declaration merging, so "go to definition" leads to the op.
 */
import type { Absent } from './absent.js';
import type { Conversion } from './autocast.js';
import { cpu, type Device } from './device.js';
import type { DType } from './dtype.js';
import { AutogradError, ShapeError } from './errors.js';
import { frozenSizes } from './frozen-sizes.js';
import type { GradFn } from './grad-fn.js';
import { hooks, layers } from './hooks.js';
import { checkFlag, optionsOf, unexpected } from './options.js';
import { setGrad } from './set-grad.js';
import { isContiguousLayout, numelOf, type Shape, wrapDim } from './shape.js';
import type { Sharding } from './sharding.js';
import { FAKE_HANDLE, freedError, Storage } from './storage.js';
import type { VersionCounter } from './version-counter.js';

export type { GradFn };

/** A multi-dimensional array of one element type on one device. */
export class Tensor {
  /** Throws. PyTorch's `x[i]`, `x[a:b]`, `x[ids]` are `select(0, i)`, `slice(0, a, b)`, `index`. */
  readonly [index: number]: Absent<'x[i] is not there: use x.select(0, i), or x.indexPut_ to write'>;
  /** @internal {@link shape} for the library itself, which reads plain arrays faster */
  sizes: Shape;
  /** @internal */
  strides: Shape;
  /** @internal in elements */
  storageOffset: number;
  /** Element type. */
  dtype: DType;
  /** The device of the values. */
  readonly device: Device;
  /** @internal null for a wrapped number */
  storage: Storage | null;
  /** @internal keeps the memory, where {@link Storage.ownedByTensors} */
  token: object | null = null;
  /** @internal what graphs keep in place of this tensor, see `SavedTensor` */
  standIn: Tensor | null = null;
  /** @internal the node as last recorded; read `gradFn` */
  node: GradFn | null = null;
  /** @internal which output of `gradFn` this is */
  outputNr = 0;
  /** @internal the leaf flag; `requiresGrad` is this or having a gradFn */
  leafRequiresGrad = false;
  /** @internal */
  gradTensor: Tensor | null = null;
  /** @internal the node that accumulates into `.grad` of a leaf */
  gradAccumulator: GradFn | null = null;
  /** @internal of an activation, by mixed precision */
  conversion: Conversion | null = null;
  /** @internal the tensor this is a differentiable view of */
  base: Tensor | null = null;
  /** @internal null until the first in-place change or view */
  versionCounter: VersionCounter | null = null;
  /** @internal of a view: the version at which `node` was recorded */
  nodeVersion = 0;
  /** @internal run after a gradient was accumulated into this leaf */
  postAccumulateHooks: Map<number, (tensor: Tensor) => void> | null = null;
  /** @internal value of a wrapped number: a JavaScript number in the place of a tensor */
  scalarValue: number;
  /** @internal */
  disposed = false;
  /** @internal number of owners, as the tape and `.grad`: of its memory, also after `set_` */
  retains = 0;
  /** @internal why autograd forbids in-place changes of this view; null if it does not */
  inPlaceForbidden: string | null = null;
  /**
   * @internal of a parameter that no module uses any more: why, and what to give optimizers in its
   * place. Few tensors have the property
   */
  declare replacedBecause: string | undefined;
  /** @internal of a leaf whose `gradDtype` was set. Few tensors have the property */
  declare ownGradDtype: DType | undefined;
  /** @internal of a distributed tensor; `shape` and `strides` are those of the whole tensor */
  sharding: Sharding | null = null;

  /** @internal use the factories. `source`: a tensor on the same storage, whose token it takes */
  constructor(
    shape: Shape,
    strides: Shape,
    offset: number,
    dtype: DType,
    device: Device,
    storage: Storage | null,
    scalarValue = 0,
    source: Tensor | null = null,
  ) {
    this.sizes = shape;
    this.strides = strides;
    this.storageOffset = offset;
    this.dtype = dtype;
    this.device = device;
    this.storage = storage;
    this.scalarValue = scalarValue;
    if (storage === null) return;
    storage.refs++;
    if (!storage.ownedByTensors) return;
    if (source === null) storage.ownToken();
    else this.token = source.token;
  }

  /** Sizes of the dims: a frozen array. Another shape is that of another tensor, such as a view. */
  get shape(): Shape {
    return frozenSizes(this.sizes);
  }

  /** Memory layout; only strided tensors exist. */
  get layout(): 'strided' {
    return 'strided';
  }

  /** The node of the autograd graph that made this tensor, or null for a leaf. */
  get gradFn(): GradFn | null {
    layers.backend.capture?.readsHistory(this);
    return this.currentGradFn;
  }

  /** @internal `gradFn` for the library itself, whose reads a capture does not guard */
  get currentGradFn(): GradFn | null {
    if (
      this.base !== null &&
      this.versionCounter !== null &&
      this.nodeVersion !== this.versionCounter.value
    )
      hooks.refreshViewHistory(this);
    return this.node;
  }

  /** Whether gradients flow to or through this tensor. */
  get requiresGrad(): boolean {
    layers.backend.capture?.readsHistory(this);
    return this.isTracked;
  }

  /** @internal `requiresGrad` for the library itself, whose reads a capture does not guard */
  get isTracked(): boolean {
    return this.leafRequiresGrad || this.currentGradFn !== null;
  }

  set requiresGrad(value: boolean) {
    this.requiresGrad_(value);
  }

  /** Whether no op of the graph made this tensor. */
  get isLeaf(): boolean {
    return this.gradFn === null;
  }

  /**
   * The gradient accumulated by `backward`, or null. The next `backward` adds into this tensor, as
   * in PyTorch; a copy of it is `grad.clone()`.
   */
  get grad(): Tensor | null {
    layers.backend.capture?.readsGrad(this);
    this.gradTensor?.storage?.expose();
    return this.gradTensor;
  }

  set grad(value: Tensor | null) {
    if (value !== null && !(value instanceof Tensor))
      throw unexpected('grad', 'the gradient', 'a tensor or null', value);
    value?.storage?.expose();
    setGrad(this, value);
  }

  /** The number of in-place changes of this tensor and its views. */
  get _version(): number {
    return layers.backend.capture?.readsVersion(this) ?? this.currentVersion;
  }

  /** @internal `_version` for the library itself, whose reads a capture does not guard */
  get currentVersion(): number {
    return this.versionCounter === null ? 0 : this.versionCounter.value;
  }

  /** The tensor that this one is a view of, or null. */
  get _base(): Tensor | null {
    return this.base;
  }

  /**
   * Size of a dim, or all sizes. @throws IndexError if `dim` is out of range
   * @example
   * ones([2, 3]).size(-1); // 3
   */
  size(): Shape;
  size(dim: number | { dim: number }): number;
  size(dim?: number | { dim: number }): Shape | number {
    if (dim === undefined) return this.shape;
    const at = typeof dim === 'object' ? optionsOf('size', dim, 'dim').dim : dim;
    return this.sizes[wrapDim(at, this.sizes.length, 'size')] as number;
  }

  /** Stride of a dim in elements, or all strides. @throws IndexError if `dim` is out of range. */
  stride(): Shape;
  stride(dim: number): number;
  stride(dim?: number): Shape | number {
    return dim === undefined
      ? frozenSizes(this.strides)
      : (this.strides[wrapDim(dim, this.sizes.length, 'stride')] as number);
  }

  /** Number of dims. */
  dim(): number {
    return this.sizes.length;
  }

  /** Number of dims. */
  get ndim(): number {
    return this.sizes.length;
  }

  /** Size of dim 0, as Python's `len`. @throws ShapeError for a tensor without dims */
  get length(): number {
    if (this.sizes.length === 0)
      throw new ShapeError('length: a tensor without dims has none', { op: 'length' });
    return this.sizes[0] as number;
  }

  /** Number of elements. @example zeros([2, 3]).numel(); // 6 */
  numel(): number {
    return numelOf(this.sizes);
  }

  /** Bytes of one element. */
  elementSize(): number {
    return this.dtype.itemsize;
  }

  /** Bytes of one element. */
  get itemsize(): number {
    return this.dtype.itemsize;
  }

  /** Whether the memory is on a CUDA device. */
  get isCuda(): boolean {
    return this.device.type === 'cuda';
  }

  /** Whether the memory is the CPU's. */
  get isCpu(): boolean {
    return this.device.type === 'cpu';
  }

  /** Whether it is on the device `meta`: it has a shape and a dtype, but no values. */
  get isMeta(): boolean {
    return this.device.type === 'meta';
  }

  /** Bytes of the elements, not of the storage. */
  get nbytes(): number {
    return this.numel() * this.dtype.itemsize;
  }

  /** Whether the elements lie in row-major order without gaps. */
  isContiguous(): boolean {
    return isContiguousLayout(this.sizes, this.strides);
  }

  /** Whether the elements are floating point numbers. */
  isFloatingPoint(): boolean {
    return this.dtype.isFloatingPoint;
  }

  /** Whether this is a fake tensor, which has no memory. @internal */
  get isFake(): boolean {
    return this.storage !== null && this.storage.handle === FAKE_HANDLE;
  }

  /** The memory that this tensor views. */
  untypedStorage(): Storage {
    layers.backend.capture?.readsMemory(this, 'the size of the storage');
    const storage = this.liveStorage('untypedStorage');
    storage.ownToken();
    return storage;
  }

  /** @internal */
  liveStorage(op: string): Storage {
    const storage = this.storage;
    if (storage === null) throw new AutogradError(`${op}: a plain number has no storage`);
    if (storage.handle === 0 || this.disposed) throw freedError(storage, op);
    return storage;
  }

  /**
   * Turns gradient tracking of a leaf on or off.
   *
   * @throws AutogradError for a tensor that is not a leaf, or not of a floating point type.
   * @example
   * const w = zeros([2]).requiresGrad_();
   * w.requiresGrad; // true
   */
  requiresGrad_(requiresGrad: boolean | { requiresGrad?: boolean } = true): this {
    const value = typeof requiresGrad === 'boolean' ? requiresGrad : wantsGrad(requiresGrad);
    if (this.gradFn !== null) {
      if (value) return this;
      throw new AutogradError(
        'requiresGrad_: only leaf tensors can stop requiring a gradient; use ' +
          'detach() on a computed one',
      );
    }
    if (value && !this.dtype.isFloatingPoint) {
      throw new AutogradError(
        'requiresGrad_: only floating point tensors can require gradients, this one is ' +
          `${this.dtype.name}; convert it with .float()`,
        { dtype: this.dtype.name },
      );
    }
    if (value !== this.leafRequiresGrad) layers.backend.capture?.setsRequiresGrad(this, value);
    this.leafRequiresGrad = value;
    return this;
  }

  /**
   * Frees the memory now, unless other tensors view it; that of `memory.owned` always. A second
   * call does nothing.
   *
   * @example
   * const t = ones([1024]);
   * // frees the memory now, not when JavaScript collects garbage
   * t.dispose();
   */
  dispose(): void {
    if (this.disposed || this.storage === null) return;
    this.disposed = true;
    if (this.storage.handle === 0) return;
    this.storage.unref(
      this,
      this.storage.owner === null
        ? 'dispose() was called on its last tensor'
        : 'dispose() was called on the tensor that owns it',
    );
    // Other tensors still own it. A disposed tensor that stays reachable must not keep it alive.
    if (this.storage.handle !== 0 && this.retains === 0) {
      this.storage = disposedStorage;
      this.token = null;
    }
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  /**
   * @internal keeps the memory alive beyond its scope until {@link release}, also memory that
   * `set_` puts in its place
   */
  retain(): void {
    if (this.storage === null) return;
    this.retains++;
    this.storage.retain();
    if (this.token === null) this.storage.ownToken();
  }

  /** @internal removes an owner that {@link retain} added */
  release(): void {
    if (this.storage === null) return;
    this.retains--;
    if (this.storage.handle !== 0) this.storage.release();
  }

  /** @internal the shared version counter, created on demand */
  sharedVersion(): VersionCounter {
    if (this.versionCounter === null) this.versionCounter = { value: 0 };
    return this.versionCounter;
  }

  /** @internal */
  bumpVersion(): void {
    if (this.versionCounter === null) this.versionCounter = { value: 1 };
    else this.versionCounter.value++;
  }
}

/** The storage of a disposed tensor whose memory has other owners. */
const disposedStorage = new Storage(cpu, 0);
disposedStorage.freedBy = 'dispose() was called on this tensor';

/**
 * Wraps a JavaScript number as an operand. It has no memory and takes part in promotion only by its
 * category. @internal
 */
export function wrapNumber(value: number, dtype: DType, device: Device): Tensor {
  return new Tensor(SCALAR_SHAPE, SCALAR_SHAPE, 0, dtype, device, null, value);
}

const SCALAR_SHAPE: Shape = Object.freeze([]);

/** @throws ArgumentError unless the option is a boolean */
function wantsGrad(options: { requiresGrad?: boolean }): boolean {
  const { requiresGrad = true } = optionsOf('requiresGrad_', options, 'requiresGrad');
  checkFlag('requiresGrad_', 'requiresGrad', requiresGrad);
  return requiresGrad;
}
