/**
 * Tensors of the program that a capture uses. For its duration each keeps its identity and gets a
 * storage without memory; after it, each gets all its fields back. So maps by tensor, closures,
 * hooks and `instanceof` work in a capture as they do in a run.
 */
import { keepGradient, Node as TapeNode } from '../../autograd/node.js';
import { isAsynchronous, markAsynchronous } from '../../core/asynchronous.js';
import { CompileError } from '../../core/errors.js';
import { contiguousStrides, type Shape } from '../../core/shape.js';
import { FAKE_HANDLE, Storage } from '../../core/storage.js';
import type { Tensor } from '../../core/tensor.js';
import type { VersionCounter } from '../../core/version-counter.js';

/** The fields that a capture may change, as they were. */
interface Fields {
  readonly values: Partial<Tensor>;
  readonly isAsynchronous: boolean;
  /** Whether its node keeps its gradient, which a change in place would move to another node. */
  readonly isRetained: boolean;
}

const FIELDS = [
  'sizes',
  'strides',
  'storageOffset',
  'dtype',
  'device',
  'storage',
  'node',
  'outputNr',
  'leafRequiresGrad',
  'gradTensor',
  'gradAccumulator',
  'base',
  'versionCounter',
  'nodeVersion',
  'disposed',
  'retains',
  'inPlaceForbidden',
  'sharding',
] as const satisfies readonly (keyof Tensor)[];

/** A storage like `real` that has no memory. */
export function withoutMemory(real: Storage): Storage {
  const made = new Storage(real.device, real.nbytes);
  made.handle = real.handle === 0 ? 0 : FAKE_HANDLE;
  made.refs = real.refs;
  made.freedBy = real.freedBy;
  made.explainAs(real);
  return made;
}

/** The history of an input that is not a leaf. */
export class InputNode extends TapeNode {
  readonly name = 'Input';

  apply(): never {
    throw new CompileError('backward ran through the input of a capture');
  }
}

/** The borrowed tensors of one capture. */
export class Borrowed {
  private readonly held = new Map<Tensor, Fields>();
  private readonly storages = new Map<Storage, Storage>();
  /** Versions as they were; views that are borrowed later share a counter that has changed. */
  private readonly versions = new Map<VersionCounter, number>();

  /** Whether the capture has borrowed the tensor. */
  has(t: Tensor): boolean {
    return this.held.has(t);
  }

  /** All that the capture has borrowed. */
  get all(): Iterable<Tensor> {
    return this.held.keys();
  }

  /** Whether `dispose` was called on a borrowed tensor. */
  get hasDisposed(): boolean {
    return [...this.held].some(([t, { values }]) => t.disposed && !values.disposed);
  }

  /** The borrowed tensors on the storage that stands for a real one. */
  on(storage: Storage): Tensor[] {
    return [...this.held.keys()].filter((t) => t.storage === storage);
  }

  /** The gradient that a borrowed tensor has outside of the capture. */
  gradOf(t: Tensor): Tensor | null {
    return this.held.get(t)?.values.gradTensor ?? null;
  }

  /**
   * Borrows a tensor, the tensor that it is a view of, and the local shard of a distributed one.
   * Their storages without memory are shared as the real ones are.
   */
  borrow(t: Tensor): void {
    if (this.held.has(t) || t.storage === null) return;
    void t.currentGradFn; // refreshed, if t is a view of a base that has changed
    if (t.base !== null) this.borrow(t.base);
    const values: Partial<Tensor> = {};
    for (const name of FIELDS) (values as Record<string, unknown>)[name] = t[name];
    const isRetained = (t.node as TapeNode | null)?.retained?.[t.outputNr] === t;
    this.held.set(t, { values, isAsynchronous: isAsynchronous(t), isRetained });
    const { versionCounter } = t;
    if (versionCounter !== null && !this.versions.has(versionCounter))
      this.versions.set(versionCounter, versionCounter.value);
    t.gradTensor = null;
    t.storage = this.standIn(t.storage);
    const local = t.sharding?.local;
    if (local !== undefined) this.borrow(local);
  }

  /**
   * Borrows a tensor and makes it a leaf, so that backward ends at it. Its gradient is asked for by
   * its edge.
   */
  borrowAsLeaf(t: Tensor): void {
    const { requiresGrad, isLeaf } = t;
    this.borrow(t);
    t.base = null;
    t.node = isLeaf ? null : new InputNode(1, []);
    t.outputNr = 0;
    t.gradAccumulator = null;
    t.leafRequiresGrad = isLeaf && requiresGrad;
  }

  /** Gives a borrowed tensor other sizes until it gets its fields back. */
  reshape(t: Tensor, shape: Shape): void {
    t.sizes = shape;
    t.strides = contiguousStrides(shape);
    if (t.storage !== null) t.storage.nbytes = (t.storageOffset + t.numel()) * t.dtype.itemsize;
  }

  /** A borrowed tensor that counts its versions together with `t`; null if `t` counts its own. */
  versionOwner(t: Tensor): Tensor | null {
    if (this.held.has(t)) return t;
    const { versionCounter } = t;
    if (versionCounter === null) return null;
    for (const owner of this.held.keys()) if (owner.versionCounter === versionCounter) return owner;
    return null;
  }

  private standIn(real: Storage): Storage {
    const known = this.storages.get(real);
    if (known !== undefined) return known;
    const made = withoutMemory(real);
    this.storages.set(real, made);
    return made;
  }

  /** Gives all tensors their fields back. */
  restore(): void {
    for (const [tensor, { values, isAsynchronous: mark, isRetained }] of this.held) {
      Object.assign(tensor, values);
      if (isRetained)
        keepGradient({ node: tensor.node as TapeNode, outputNr: tensor.outputNr }, tensor);
      if (isAsynchronous(tensor) !== mark) markAsynchronous(tensor, mark);
    }
    for (const [counter, version] of this.versions) counter.value = version;
    this.held.clear();
    this.versions.clear();
  }
}
