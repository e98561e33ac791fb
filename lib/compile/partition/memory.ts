/**
 * The memory of a graph's values: which values share it, and which nodes change it when.
 * Recomputing a value in backward is right only if what it reads has not changed since.
 */
import { FAKE_HANDLE, Storage } from '../../core/storage.js';
import { Tensor } from '../../core/tensor.js';
import type { Graph } from '../graph/graph.js';
import type { Node, Value, ValueMeta } from '../graph/node.js';
import { isView, isWait } from '../graph/traits.js';
import { isTagged } from './tags.js';
import { type NodeValue, ValueMap } from './value-map.js';

/** Memory that several values may share. */
interface Block {
  /** The block that this one is part of; itself, if none. */
  whole: Block;
  /** The position of the last node that changes it; -1 if none does. */
  lastWrite: number;
  /** The number of nodes that change it. */
  writes: number;
}

/** The memory of the values of a graph at one time: edits of the graph need a new one. @internal */
export class Memory {
  private readonly positions: ReadonlyMap<Node, number>;
  private readonly blocks = new ValueMap<Block>();
  /** Tensors made in the graph that `set_` moved to other memory, and where it last did. */
  private readonly moved = new ValueMap<number>();
  /** The first value that is a `.grad`; all of them count as one memory. */
  private gradient: NodeValue | null = null;

  constructor(graph: Graph) {
    this.positions = new Map(graph.nodes.map((node, i) => [node, i]));
    for (const node of graph.nodes) this.addMoves(node);
    for (const [first, ...others] of graph.shared)
      for (const other of others)
        this.join({ node: first as Node, output: 0 }, { node: other, output: 0 });
    this.joinConstants(graph);
    graph.nodes.forEach((node, i) => {
      for (const value of writtenValues(node)) {
        const block = this.blockOf(value);
        block.lastWrite = i;
        block.writes++;
      }
    });
  }

  /** The position of a node in the order of execution. */
  positionOf(node: Node): number {
    return this.positions.get(node) as number;
  }

  /**
   * The value whose memory this one is a window on; itself if it has its own. A view of a tensor
   * that `set_` moves later is its own base, because its memory is found nowhere else; so is the
   * waited result of a collective, because backward does not wait again.
   */
  base(value: NodeValue): NodeValue {
    let at = value;
    for (;;) {
      const next = source(at);
      if (next === null || isKeptWait(at, next)) return at;
      if (at.node.into === null && this.movesAfter(next, at.node)) return at;
      at = next;
    }
  }

  /** Whether the value is a view whose base is another value. */
  isWindow(value: NodeValue): boolean {
    return value.node.into === null && isAlias(value.node) && this.base(value) !== value;
  }

  /** The position of the last node that changes the value's memory; -1 if none does. */
  lastWrite(value: NodeValue): number {
    return this.blockOf(value).lastWrite;
  }

  /** The number of nodes that change the value's memory. */
  writes(value: NodeValue): number {
    return this.blockOf(value).writes;
  }

  /** The memory of a value: the same object for all values that may share it. */
  of(value: NodeValue): object {
    return this.blockOf(value);
  }

  /** Whether what the node reads is at another time the same: nothing changes it after the node. */
  readsUnchanged(node: Node): boolean {
    const at = this.positionOf(node);
    return node.reads.every((value) => 'number' in value || this.lastWrite(value) <= at);
  }

  private movesAfter(base: NodeValue, view: Node): boolean {
    for (let at: NodeValue | null = base; at !== null; at = source(at))
      if ((this.moved.get(at) ?? -1) > this.positionOf(view)) return true;
    return false;
  }

  private addMoves(node: Node): void {
    const gradient =
      node.effect === 'setGrad'
        ? node.inputs[1]
        : node.effect === 'readGrad'
          ? { node, output: 0 }
          : undefined;
    if (gradient !== undefined && 'node' in gradient) {
      this.gradient ??= gradient;
      this.join(this.gradient, gradient);
    }
    if (node.effect !== 'set_') return;
    const [target, from] = node.inputs as [NodeValue, NodeValue];
    // The program's own tensors are read where they lie when backward runs.
    if (target.node.kind === 'call') this.moved.set(target, this.positionOf(node));
    this.join(target, from);
  }

  private joinConstants(graph: Graph): void {
    const byStorage = new Map<unknown, Node>();
    for (const node of graph.nodes) {
      const storage = node.tensor?.storage;
      if (storage === null || storage === undefined) continue;
      const first = byStorage.get(storage);
      if (first === undefined) byStorage.set(storage, node);
      else this.join({ node: first, output: 0 }, { node, output: 0 });
    }
  }

  private join(a: NodeValue, b: NodeValue): void {
    this.blockOf(b).whole = this.blockOf(a);
  }

  private blockOf(value: NodeValue): Block {
    let at = value;
    for (let next = source(at); next !== null; next = source(at)) at = next;
    let block = this.blocks.get(at);
    if (block === undefined) {
      block = { lastWrite: -1, writes: 0 } as Block;
      block.whole = block;
      this.blocks.set(at, block);
    }
    while (block.whole !== block) block = block.whole;
    return block;
  }
}

/**
 * Whether a value is waited for in forward only: a collective that runs again is waited for again.
 */
function isKeptWait({ node }: NodeValue, result: NodeValue): boolean {
  return isWait(node) && !isTagged(result.node);
}

/**
 * The value that this one is a window on, or that an in-place call returned; null if none.
 *
 * @internal
 */
export function source({ node, output }: NodeValue): NodeValue | null {
  const value = node.into !== null ? node.into : isAlias(node) ? node.inputs[0] : undefined;
  return output > 0 || value === undefined || 'number' in value ? null : value;
}

/** The effects that return a tensor on the memory of their input. */
const ALIASES: ReadonlySet<Node['effect']> = new Set([
  'localShard',
  'distribute',
  'createParameter',
] as const);

/** Whether the node returns a tensor on the memory of its first input. */
export function isAlias(node: Node): boolean {
  return isView(node) || ALIASES.has(node.effect);
}

/** The values whose memory a node changes. @internal */
export function writtenValues(node: Node): NodeValue[] {
  const computed = (values: readonly (Value | undefined)[]): NodeValue[] =>
    values.filter((v): v is NodeValue => v !== undefined && !('number' in v));
  if (node.into !== null) return computed([node.into]);
  if (node.effect === 'applyFunction' || node.effect === 'callOpaque') return computed(node.inputs);
  if (node.effect === 'set_') return computed(node.inputs.slice(0, 2));
  if (node.effect === 'resize_') return computed(node.inputs.slice(0, 1));
  const changed = node.op?.mutates?.(standIns(node), node.params) ?? [];
  return computed(changed.map((i) => node.inputs[i]));
}

/** Tensors without memory in place of a node's operands, for the rules of its op. @internal */
export function standIns(node: Node): Tensor[] {
  return node.inputs.map((value) =>
    'number' in value ? value.number : standIn(value.node.metas[value.output] as ValueMeta),
  );
}

/** A tensor without memory, which no observer counts. @internal */
export function standIn(meta: ValueMeta, nbytes: number = bytesOf(meta)): Tensor {
  const storage = new Storage(meta.device, nbytes);
  storage.handle = FAKE_HANDLE;
  return new Tensor(meta.shape, meta.strides, 0, meta.dtype, meta.device, storage);
}

/** The bytes from the first element of a tensor to its last. @internal */
export function bytesOf({ shape, strides, dtype }: ValueMeta): number {
  let last = 0;
  for (let i = 0; i < shape.length; i++) {
    if (shape[i] === 0) return 0;
    last += ((shape[i] as number) - 1) * (strides[i] as number);
  }
  return (last + 1) * dtype.itemsize;
}
