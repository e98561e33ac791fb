/**
 * Puts fused calls into a graph. A fused call comes where the first node needs it, at the latest
 * where its last member was, behind all that it reads; other nodes keep their order.
 */
import { opByName } from '../../core/op.js';
import { contiguousStrides, numelOf, type Shape, sameShape } from '../../core/shape.js';
import { type FusedOutput, fusedPointwiseOp } from '../../ops/fused-pointwise.js';
import type { Graph } from '../graph/graph.js';
import type { Node, Value, ValueMeta } from '../graph/node.js';
import { type NodeValue, ValueMap } from '../partition/value-map.js';
import { isDense, metaOfValue } from './candidates.js';
import type { Group, Groups } from './groups.js';
import { programOf, shapeOf } from './program.js';

/** The names of fused calls have the first of their ops. */
const MOST_NAMES = 5;

export class Rewriter {
  private readonly graph: Graph;
  private readonly groups: Groups;
  private readonly groupOf = new Map<Node, Group>();
  private readonly emitted = new Set<Node>();
  /** What stands for the results of members. */
  private readonly replacements = new ValueMap<Value>();
  /** The draw before each: they take numbers from generators in this order. */
  private readonly drawBefore = new Map<Node, Node>();

  constructor(graph: Graph, groups: Groups) {
    this.graph = graph;
    this.groups = groups;
    for (const group of groups.all) for (const node of group.members) this.groupOf.set(node, group);
    let last: Node | null = null;
    for (const node of graph.nodes) {
      if (node.effect !== 'draw') continue;
      if (last !== null) this.drawBefore.set(node, last);
      last = node;
    }
  }

  run(): void {
    const { graph } = this;
    for (const node of graph.nodes.splice(0)) {
      const group = this.groupOf.get(node);
      if (group === undefined || group.members.at(-1) === node) this.emit(node);
    }
    graph.outputs = graph.outputs.map((value) => this.replaced(value));
  }

  private replaced(value: Value): Value {
    return 'number' in value ? value : (this.replacements.get(value) ?? value);
  }

  /** Appends a node, or the call that it became, behind what it reads. */
  private emit(node: Node): void {
    if (this.emitted.has(node)) return;
    const group = this.groupOf.get(node);
    if (group !== undefined) {
      this.emitGroup(group);
      return;
    }
    this.emitted.add(node);
    const draw = this.drawBefore.get(node);
    if (draw !== undefined) this.emit(draw);
    for (const value of node.reads) if ('node' in value) this.emit(value.node);
    node.inputs = node.inputs.map((value) => this.replaced(value));
    if (node.into !== null) node.into = this.replaced(node.into);
    this.graph.nodes.push(node);
  }

  private emitGroup(group: Group): void {
    for (const node of group.members) this.emitted.add(node);
    for (const { node } of group.inputs) this.emit(node);
    const program = programOf(group, this.groups.operands);
    const shape = shapeOf(group);
    const last = group.members.at(-1) as Node;
    const names = program.steps.map(({ name }) => name);
    const more = names.length > MOST_NAMES ? '_etc' : '';
    const node = this.graph.add({
      kind: 'call',
      name: `fused_${names.slice(0, MOST_NAMES).join('_')}${more}`,
      op: fusedPointwiseOp,
      inputs: group.inputs.map((value) => this.inShape(value, shape, last)),
      params: { program },
      metas: group.stored.map((each, i) => {
        const { shape, strides } = program.outputs[i] as FusedOutput;
        return { ...(each.metas[0] as ValueMeta), shape, strides };
      }),
      origin: last.origin,
      mode: last.mode,
      tags: last.tags,
    });
    for (const [output, member] of group.stored.entries()) {
      const own = member.metas[0] as ValueMeta;
      const value = { node, output };
      this.replacements.set(
        { node: member, output: 0 },
        sameShape(own.shape, metaOfValue(value).shape)
          ? value
          : this.view(value, own.shape, member),
      );
    }
  }

  /** A value that a group reads: if it is a dense one in other dims, as a view. */
  private inShape(value: NodeValue, shape: Shape, like: Node): Value {
    const now = this.replaced(value);
    const meta = metaOfValue(value);
    const isOther = !sameShape(meta.shape, shape) && isDense(meta, numelOf(shape));
    return isOther && 'node' in now ? this.view(now, shape, like) : now;
  }

  private view(value: NodeValue, size: Shape, { origin, mode, tags }: Node): NodeValue {
    const meta = { ...metaOfValue(value), shape: size, strides: contiguousStrides(size) };
    const node = this.graph.add({
      kind: 'call',
      name: 'view',
      op: opByName('view') ?? null,
      inputs: [value],
      params: { size },
      metas: [meta],
      origin,
      mode,
      tags,
    });
    return { node, output: 0 };
  }
}
