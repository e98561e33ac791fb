/** The tensors that a graph knows, with their values, and the memory that they are on. */
import type { Storage } from '../../core/storage.js';
import type { GradFn, Tensor } from '../../core/tensor.js';
import type { Node, Value } from '../graph/node.js';
import { sameWindow } from './same-window.js';

const MADE_IN_CAPTURE =
  'it was made while compile captured a function, and stands for values that only a run ' +
  'computes. Return it from the function instead of storing it elsewhere';

export class KnownTensors {
  private readonly values = new Map<Tensor, Value>();
  private readonly onStorage = new Map<Storage, Tensor[]>();
  /** Memory that ends with the capture and has no known tensors. */
  private readonly others = new Set<Storage>();

  get(t: Tensor): Value | undefined {
    return this.values.get(t);
  }

  /** Whether the tensor, or its memory, is known. */
  has(t: Tensor): boolean {
    return this.values.has(t) || (t.storage !== null && this.onStorage.has(t.storage));
  }

  /** Gives a tensor its value, unless it has one. */
  define(t: Tensor, value: Value): void {
    if (this.values.has(t)) return;
    this.values.set(t, value);
    this.moved(t);
  }

  /** Gives a known tensor another value. */
  change(t: Tensor, value: Value): void {
    this.values.set(t, value);
  }

  /** Called when a tensor has got other memory. */
  moved(t: Tensor): void {
    const { storage } = t;
    if (storage === null) return;
    const known = this.onStorage.get(storage);
    if (known === undefined) this.onStorage.set(storage, [t]);
    else if (!known.includes(t)) known.push(t);
  }

  /** A tensor that is on the storage now. */
  tensorOn(storage: Storage): Tensor | undefined {
    return this.onStorage.get(storage)?.find((t) => t.storage === storage);
  }

  /** A tensor that is an output of the tape's node, or the leaf that it accumulates into. */
  tensorAt(node: GradFn, outputNr: number | null): Tensor | null {
    for (const t of this.values.keys())
      if (
        t.gradAccumulator === node ||
        (t.node === node && t.outputNr === (outputNr ?? t.outputNr))
      )
        return t;
    return null;
  }

  /** A tensor of the same window on the same memory; distributed if `t` is. */
  sameAs(t: Tensor): Tensor | undefined {
    const known = this.onStorage.get(t.storage as Storage) ?? [];
    const isWhole = t.sharding !== null;
    return known.find(
      (other) =>
        other.storage === t.storage &&
        (other.sharding !== null) === isWhole &&
        sameWindow(other, t),
    );
  }

  /** The distributed tensor whose local shard this is. */
  wholeOf(t: Tensor): Tensor | undefined {
    return this.onStorage.get(t.storage as Storage)?.find((other) => other.sharding?.local === t);
  }

  /** Forgets the tensors of removed nodes; their memory ends with the capture, too. */
  forget(removed: ReadonlySet<Node>): void {
    for (const [t, value] of this.values) {
      if ('number' in value || !removed.has(value.node)) continue;
      this.values.delete(t);
      const { storage } = t;
      const known = storage === null ? undefined : this.onStorage.get(storage);
      if (storage === null || known === undefined) continue;
      this.others.add(storage);
      known.splice(known.indexOf(t), 1);
    }
  }

  /** Ends the memory of others together with this one. */
  absorb(other: KnownTensors): void {
    for (const storage of other.onStorage.keys())
      if (!this.onStorage.has(storage)) this.others.add(storage);
  }

  /** Marks the memory that the capture made as freed; borrowed tensors are on their own again. */
  end(): void {
    for (const storage of this.onStorage.keys())
      if (this.tensorOn(storage) !== undefined) storage.markFreed(MADE_IN_CAPTURE);
    for (const storage of this.others) storage.markFreed(MADE_IN_CAPTURE);
  }
}
