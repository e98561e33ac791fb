/**
 * Joins what a graph writes into the parts of a new tensor, as gradients of slices are: kernels of
 * fused calls write parts that are joined.
 */
import { sameShape } from '../../core/shape.js';
import { copyOp } from '../../ops/copy.js';
import { catOp } from '../../ops/join.js';
import { sliceOp } from '../../ops/window.js';
import type { Graph } from '../graph/graph.js';
import type { Node, ValueMeta } from '../graph/node.js';
import { isView } from '../graph/traits.js';
import type { NodeValue } from '../partition/value-map.js';
import { isBarrier } from './candidates.js';

interface Slice {
  readonly dim: number;
  readonly start: number;
  readonly length: number;
  readonly step: number;
}

/** A call that writes a value into a part of a new tensor. */
interface Write extends Slice {
  readonly copy: Node;
  readonly slice: Node;
  readonly value: NodeValue;
}

/** Replaces writes into all parts of new memory by calls that join the parts. */
export function joinWrittenParts(graph: Graph): void {
  const found = new WrittenParts(graph);
  for (const node of [...graph.nodes]) {
    if (node.into !== null || node.op?.traits.includes('uninitialized') !== true) continue;
    const whole = found.seenAs(node);
    const writes = found.writesInto(whole);
    if (writes !== null) join(graph, whole, writes);
  }
}

function join(graph: Graph, whole: Node, writes: readonly Write[]): void {
  const [{ dim }] = writes as readonly [Write];
  const meta = whole.metas[0] as ValueMeta;
  const last = writes
    .map(({ copy }) => copy)
    .reduce((a, b) => (graph.nodes.indexOf(a) > graph.nodes.indexOf(b) ? a : b));
  const { origin, mode, tags } = last;
  const joined = graph.add(
    {
      kind: 'call',
      name: 'cat',
      op: catOp,
      inputs: writes.map(({ value }) => value),
      params: { dim, sizes: writes.map(({ length }) => length), strides: meta.strides },
      metas: [meta],
      origin,
      mode,
      tags,
    },
    last,
  );
  for (const { copy, slice } of writes) {
    graph.erase(copy);
    graph.erase(slice);
  }
  graph.replaceUses({ node: whole, output: 0 }, joined);
}

class WrittenParts {
  private readonly users: ReadonlyMap<Node, readonly Node[]>;
  private readonly positions: ReadonlyMap<Node, number>;
  private readonly order: readonly Node[];
  private readonly results: ReadonlySet<Node>;

  constructor(graph: Graph) {
    this.users = graph.allUsers();
    this.order = [...graph.nodes];
    this.positions = new Map(this.order.map((node, i) => [node, i]));
    this.results = new Set(graph.outputs.flatMap((value) => ('node' in value ? value.node : [])));
  }

  /** The view in other dims through which all see new memory; the memory if there is none. */
  seenAs(memory: Node): Node {
    const [view, ...others] = this.usersOf(memory);
    const isOnly = view !== undefined && others.length === 0 && !this.results.has(memory);
    return isOnly && view.op?.name === 'permute' && view.into === null ? view : memory;
  }

  /** The writes into all parts of new memory, in the order of parts; null if there are others. */
  writesInto(whole: Node): readonly Write[] | null {
    const users = this.usersOf(whole);
    const writes = users.flatMap((user) => this.writeBy(user) ?? []);
    writes.sort((a, b) => a.start - b.start);
    if (writes.length < 2 || !areWhole(whole, writes) || this.isResult(whole)) return null;
    const copies = new Set(writes.map(({ copy }) => copy));
    const positions = [...copies].map((copy) => this.positionOf(copy));
    const [from, to] = [Math.min(...positions), Math.max(...positions)];
    const slices = new Set(writes.map(({ slice }) => slice));
    if (users.some((user) => !slices.has(user) && this.positionOf(user) < to)) return null;
    const between = this.order.slice(from, to);
    return between.every((node) => copies.has(node) || !isBarrier(node)) ? writes : null;
  }

  private usersOf(node: Node): readonly Node[] {
    return this.users.get(node) as readonly Node[];
  }

  /** Whether a result lies in the memory of a value: its version counts the writes. */
  private isResult(node: Node): boolean {
    const views = this.usersOf(node).filter((user) => isView(user) || user.into !== null);
    return this.results.has(node) || views.some((view) => this.isResult(view));
  }

  private positionOf(node: Node): number {
    return this.positions.get(node) as number;
  }

  /** The write into a slice that nothing else uses. */
  private writeBy(slice: Node): Write | null {
    const [copy, ...others] = this.usersOf(slice);
    if (slice.op !== sliceOp || copy?.op !== copyOp || others.length > 0) return null;
    const { into, inputs } = copy;
    const [value] = inputs;
    if (into === null || 'number' in into || into.node !== slice) return null;
    if ([slice, copy].some((node) => this.results.has(node)) || this.usersOf(copy).length > 0)
      return null;
    if (value === undefined || 'number' in value || value.node === slice) return null;
    const [from, to] = [value.node.metas[value.output], slice.metas[0]];
    const fits =
      from !== undefined &&
      to !== undefined &&
      from.dtype === to.dtype &&
      from.device === to.device &&
      from.placements === null &&
      sameShape(from.shape, to.shape);
    return fits ? { ...(slice.params as Slice), copy, slice, value } : null;
  }
}

/** Whether parts in their order are all of a tensor. */
function areWhole({ metas: [meta] }: Node, writes: readonly Write[]): boolean {
  const [{ dim }] = writes as readonly [Write];
  let end = 0;
  for (const { dim: own, start, length, step } of writes) {
    if (own !== dim || start !== end || step !== 1) return false;
    end += length;
  }
  return end === meta?.shape[dim];
}
