/** What guards compare of a tensor beside its identity: its metadata, never its values. */
import { isAsynchronous } from '../../core/asynchronous.js';
import { cpu, type Device } from '../../core/device.js';
import { type DType, float32 } from '../../core/dtype.js';
import { formatShape, isContiguousLayout, type Shape, sameShape } from '../../core/shape.js';
import type { Sharding } from '../../core/sharding.js';
import type { Storage } from '../../core/storage.js';
import { Tensor } from '../../core/tensor.js';
import type { Difference } from './facts.js';

/** `node`: an op made it. */
type History = 'no gradient' | 'leaf' | 'node';

/** Whether sizes, strides and numbers are not compared. */
let ignoresSizes = false;

/** Whether two values are numbers, which may differ where sizes do: positions are such numbers. */
export const areAnyNumbers = (a: unknown, b: unknown): boolean =>
  ignoresSizes && typeof a === 'number' && typeof b === 'number';

/** Compares by `fn` what has nothing to do with sizes. */
export function ignoringSizes(fn: () => boolean): boolean {
  ignoresSizes = true;
  try {
    return fn();
  } finally {
    ignoresSizes = false;
  }
}

let fieldsOfTensors = 0;

/** What a program has added to a tensor. */
export function propertiesOfProgram(t: object): readonly string[] {
  fieldsOfTensors ||= Object.keys(new Tensor([], [], 0, float32, cpu, null)).length;
  const names = Object.keys(t);
  const isOfLibrary = names.length === fieldsOfTensors || isAsynchronous(t as Tensor);
  return isOfLibrary ? [] : names.slice(fieldsOfTensors);
}

export class TensorFacts {
  private readonly type: unknown;
  private readonly dtype: DType;
  private readonly device: Device;
  private readonly shape: Shape;
  private readonly strides: Shape;
  private readonly history: History;
  /** The name of the node that made it. */
  private readonly nodeName: string;
  private readonly isView: boolean;
  private readonly memory: Memory;
  /** Whether it may have memory or not. */
  private readonly isManaged: boolean;
  private readonly isAsynchronous: boolean;
  private readonly spec: Sharding['spec'] | null;
  private readonly local: TensorFacts | null;

  /** `isManaged`: the graph fills and frees its memory, so it does not matter if it has any. */
  constructor(t: Tensor, isManaged = false) {
    this.type = classOf(t);
    this.dtype = t.dtype;
    this.device = t.device;
    this.shape = t.sizes;
    this.strides = t.strides;
    this.history = historyOf(t);
    this.nodeName = t.currentGradFn?.name ?? '';
    this.isView = t.base !== null;
    this.isManaged = isManaged;
    this.memory = memoryOf(t, isManaged);
    this.isAsynchronous = isAsynchronous(t);
    this.spec = t.sharding?.spec ?? null;
    this.local = t.sharding === null ? null : new TensorFacts(t.sharding.local);
  }

  matches(t: Tensor): boolean {
    return (
      t.dtype === this.dtype &&
      t.device === this.device &&
      ((sameShape(t.sizes, this.shape) && sameShape(t.strides, this.strides)) || ignoresSizes) &&
      historyOf(t) === this.history &&
      (this.history !== 'node' || t.currentGradFn?.name === this.nodeName) &&
      (t.base !== null) === this.isView &&
      memoryOf(t, this.isManaged) === this.memory &&
      isAsynchronous(t) === this.isAsynchronous &&
      (t.constructor === this.type || classOf(t) === this.type) &&
      (t.sharding === null ? this.local === null : this.matchesSharding(t.sharding))
    );
  }

  /** Whether it is neither computed, nor a view, nor distributed. */
  get isPlainLeaf(): boolean {
    return this.history !== 'node' && !this.isView && this.spec === null;
  }

  /** Whether the dtype, the device and the leaf flag are the same, and `t` is not disposed. */
  hasFieldsOf(t: Tensor): boolean {
    return (
      t.dtype === this.dtype &&
      t.device === this.device &&
      t.leafRequiresGrad === (this.history === 'leaf') &&
      t.disposed === (this.memory === 'freed') &&
      isAsynchronous(t) === this.isAsynchronous
    );
  }

  /** Everything but sizes and strides. */
  get apartFromSizes(): readonly unknown[] {
    const { type, dtype, device, history, nodeName, isView, memory, spec, local } = this;
    const own = [type, dtype, device, history, nodeName, isView, memory, spec?.id ?? null];
    return [...own, ...(local?.apartFromSizes ?? [])];
  }

  private matchesSharding({ spec, local }: Sharding): boolean {
    return spec.id === this.spec?.id && (this.local as TensorFacts).matches(local);
  }

  difference(path: string, t: Tensor): Difference {
    return { path, before: String(this), now: String(new TensorFacts(t, this.isManaged)) };
  }

  /** `float32[2, 3] on cpu, a leaf that requires a gradient`. */
  toString(): string {
    const { dtype, device, shape, strides, nodeName, spec, local } = this;
    const parts = [`${dtype.name}${formatShape(shape)} on ${device}`];
    if (!isContiguousLayout(shape, strides)) parts.push(`of strides ${formatShape(strides)}`);
    if (this.type !== Tensor) parts.push(`of class ${(this.type as { name: string }).name}`);
    if (this.isView) parts.push('a view');
    if (this.history === 'leaf') parts.push('a leaf that requires a gradient');
    if (this.history === 'node') parts.push(`made by ${nodeName}`);
    if (this.memory !== 'live') parts.push(this.memory);
    if (this.isAsynchronous) parts.push('a result of a collective');
    if (spec !== null) parts.push(`placed as ${spec}, local shard ${local}`);
    return parts.join(', ');
  }
}

/**
 * A tensor from outside and its facts. While its fields are the same objects, nothing else is
 * compared: a model has many such tensors.
 */
export class OuterTensor {
  readonly tensor: Tensor;
  readonly path: string;
  readonly facts: TensorFacts;
  private shape: Shape;
  private strides: Shape;
  private storage: Storage | null;
  private nbytes: number;

  constructor(tensor: Tensor, path: string, isManaged: boolean) {
    this.tensor = tensor;
    this.path = path;
    this.facts = new TensorFacts(tensor, isManaged);
    this.shape = tensor.sizes;
    this.strides = tensor.strides;
    this.storage = tensor.storage;
    this.nbytes = tensor.storage?.nbytes ?? 0;
  }

  matches(): boolean {
    const { tensor: t, storage } = this;
    if (
      this.facts.isPlainLeaf &&
      t.sizes === this.shape &&
      t.strides === this.strides &&
      t.storage === storage &&
      t.node === null &&
      t.base === null &&
      t.sharding === null &&
      this.facts.hasFieldsOf(t) &&
      storage !== null &&
      storage.handle !== 0 &&
      storage.nbytes === this.nbytes
    )
      return true;
    if (!this.facts.matches(t)) return false;
    this.shape = t.sizes;
    this.strides = t.strides;
    this.storage = t.storage;
    this.nbytes = t.storage?.nbytes ?? 0;
    return true;
  }
}

type Memory = 'live' | 'without memory' | 'freed';

const memoryOf = ({ storage, disposed }: Tensor, isManaged: boolean): Memory =>
  storage === null
    ? 'live'
    : disposed || storage.handle === 0
      ? 'freed'
      : storage.nbytes === 0 && !isManaged
        ? 'without memory'
        : 'live';

/** What a tensor is to autograd. */
export const historyOf = (t: Tensor): History =>
  t.leafRequiresGrad ? 'leaf' : t.currentGradFn === null ? 'no gradient' : 'node';

/** A class; `Tensor` for distributed tensors that ops made, which are instances of DTensor. */
function classOf(t: Tensor): unknown {
  return t.sharding !== null && t.constructor.name === 'DTensor' ? Tensor : t.constructor;
}
