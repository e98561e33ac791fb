/**
 * Where the plain tensors of a captured step come from. What the step makes itself, of no value but
 * constants, is equal on all ranks: it counts as replicated beside distributed tensors.
 */
import type { TensorOrigin } from '../../core/backend.js';
import type { AnyOp } from '../../core/op.js';
import type { Storage } from '../../core/storage.js';
import type { Tensor } from '../../core/tensor.js';
import type { Node, Value } from '../graph/node.js';
import { communicates } from '../graph/traits.js';

export class Origins {
  /** Tensors by themselves, since what shares memory with a local shard is this rank's alone. */
  private readonly known = new WeakMap<Tensor, TensorOrigin>();
  /** Memory into which other values were written. */
  private readonly written = new WeakMap<Storage, TensorOrigin>();

  /** The elements of tensors that the program writes, which nobody has to wait for. */
  readonly values = new WeakMap<Tensor, unknown>();
  /** What the step makes and uses beside distributed tensors. */
  readonly replicated: Value[] = [];

  /** Where the tensor comes from. */
  of(t: Tensor): TensorOrigin {
    if (t.storage === null) return 'made';
    return worst([this.known.get(t) ?? 'other', this.writtenInto(t.storage)]);
  }

  /** Sets where a tensor comes from that has its memory by no call. */
  set(t: Tensor, origin: TensorOrigin): void {
    this.known.set(t, origin);
  }

  /** Adds what a call returns, and what it writes. */
  addCall(
    node: Node,
    inputs: readonly Tensor[],
    into: Tensor | null,
    outputs: readonly Tensor[],
  ): void {
    const op = node.op as AnyOp;
    const own = communicates(node) ? 'other' : node.draw === null ? 'made' : 'drawn';
    const origin = worst([own, ...inputs.map((t) => this.of(t))]);
    const mutated = (op.mutates?.(inputs, node.params) ?? []).map((i) => inputs[i] as Tensor);
    for (const { storage } of into === null ? mutated : [...mutated, into])
      if (storage !== null) this.written.set(storage, worst([origin, this.writtenInto(storage)]));
    for (const t of outputs) if (t !== into) this.known.set(t, origin);
  }

  private writtenInto(storage: Storage): TensorOrigin {
    return this.written.get(storage) ?? 'made';
  }
}

const ORIGINS: readonly TensorOrigin[] = ['made', 'drawn', 'other'];

/** What a value of several origins is. */
const worst = (origins: readonly TensorOrigin[]): TensorOrigin =>
  ORIGINS[Math.max(...origins.map((origin) => ORIGINS.indexOf(origin)))] as TensorOrigin;
