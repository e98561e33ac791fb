/**
 * Turns calls that write into memory of the graph into calls that return new memory, so that other
 * passes may repeat, move and merge them. Reads behind such a call get the new value; views of the
 * old memory that are read there are made again on the new one.
 */
import { opByName } from '../../core/op.js';
import {
  contiguousStrides,
  isNonOverlappingAndDense,
  numelOf,
  sameShape,
} from '../../core/shape.js';
import type { Graph } from '../graph/graph.js';
import type { Node, Value, ValueMeta } from '../graph/node.js';
import { BACKWARD } from '../partition/joint-graph.js';
import { isAlias, Memory, source, standIns, writtenValues } from '../partition/memory.js';
import { type NodeValue, ValueMap } from '../partition/value-map.js';

/**
 * Rewrites the calls that write into all of a tensor made in the graph, or into a view of all its
 * elements. Left in place are writes into inputs and constants, into a part of a tensor, of another
 * dtype or layout, and into memory that effects use or that both halves of a joint graph write.
 *
 * @returns the number of rewritten calls
 * @see PyTorch `torch.func.functionalize`
 */
export function functionalise(graph: Graph): number {
  return new Functionaliser(graph).run();
}

/** Memory of the graph that its calls write into. */
interface Rewritten {
  /** How many calls were rewritten so far. */
  version: number;
  /** The value that the last of them wrote, and what stands for it now. */
  written: NodeValue;
  now: NodeValue;
}

/** What stands for a value at some version of its memory. */
interface Current {
  readonly version: number;
  /** Whether it was made in backward, so that forward cannot read it. */
  readonly late: boolean;
  readonly value: NodeValue;
}

/** What a value is in the graph before the pass. */
interface Origin {
  readonly own: Rewritten;
  /** The value that it is a window on; null for one that has memory of its own. */
  readonly source: NodeValue | null;
  readonly base: NodeValue;
}

class Functionaliser {
  private readonly graph: Graph;
  /** The values whose memory may be rewritten. The pass changes what `Memory` reads of nodes. */
  private readonly origins = new ValueMap<Origin>();
  private readonly current = new ValueMap<Current>();
  /** What in-place calls return, as it was before the pass. */
  private readonly targets = new Map<Node, Value>();
  private rewritten = 0;

  constructor(graph: Graph) {
    this.graph = graph;
    const memory = new Memory(graph);
    const suited = suitedMemory(graph, memory);
    for (const node of graph.nodes) {
      if (node.into !== null) this.targets.set(node, node.into);
      for (let output = 0; output < node.metas.length; output++) {
        const value = { node, output };
        const own = suited.get(memory.of(value));
        if (own === undefined) continue;
        this.origins.set(value, { own, source: source(value), base: memory.base(value) });
      }
    }
  }

  run(): number {
    const { graph, origins } = this;
    if (origins.keys.length === 0) return 0;
    let isForward = true;
    for (const node of graph.nodes.splice(0)) {
      const late = isLate(node);
      const isTangent = node.kind === 'placeholder' && graph.nodes.some(isCall);
      if (isForward && (late || isTangent)) {
        this.settleOutputs(false);
        isForward = false;
      }
      node.inputs = node.inputs.map((value) => this.at(value, late));
      if (node.into !== null) this.addInPlace(node, node.into, late);
      else {
        graph.nodes.push(node);
        const value = { node, output: 0 };
        const own = origins.get(value)?.own;
        if (own !== undefined) this.current.set(value, { version: own.version, late, value });
      }
    }
    if (isForward) this.settleOutputs(false);
    this.settleOutputs(true);
    return this.rewritten;
  }

  /** Replaces the results of one half. Nodes that those of forward need stand in forward. */
  private settleOutputs(late: boolean): void {
    const { graph } = this;
    graph.outputs = graph.outputs.map((value) => {
      if ('number' in value) return value;
      const origin = this.origins.get(this.settled(value));
      if (origin === undefined || isLate(origin.base.node) !== late) return value;
      return this.at(value, late);
    });
  }

  private addInPlace(node: Node, target: Value, late: boolean): void {
    const written = this.settled(target as NodeValue);
    const origin = this.origins.get(written);
    const meta = written.node.metas[written.output];
    if (
      origin === undefined ||
      meta === undefined ||
      !fillsSame(written, origin.base) ||
      !gives(node, meta)
    ) {
      node.into = this.at(target, late);
      this.graph.nodes.push(node);
      return;
    }
    this.graph.nodes.push(node);
    this.rewritten++;
    node.into = null;
    node.metas = [meta];
    const { own } = origin;
    own.version++;
    own.written = written;
    own.now = { node, output: 0 };
    this.current.set(written, { version: own.version, late, value: own.now });
  }

  /** The value before the in-place calls that returned it. */
  private settled(value: NodeValue): NodeValue {
    let at = value;
    for (;;) {
      const target = at.output > 0 ? undefined : this.targets.get(at.node);
      if (target === undefined || 'number' in target) return at;
      at = target;
    }
  }

  /** What stands now for a value. */
  private at(value: Value, late: boolean): Value {
    if ('number' in value) return value;
    const read = this.settled(value);
    const origin = this.origins.get(read);
    if (origin === undefined || origin.own.version === 0) return value;
    const { version } = origin.own;
    const known = this.current.get(read);
    if (known !== undefined && known.version === version && (late || !known.late))
      return known.value;
    const made = this.again(read, origin, late);
    this.current.set(read, { version, late, value: made });
    return made;
  }

  /** Makes a view again on the memory as it is now. */
  private again(value: NodeValue, origin: Origin, late: boolean): NodeValue {
    const { written, now } = origin.own;
    if (value.node === written.node && value.output === written.output) return now;
    const { node } = value;
    const tags = new Set([...node.tags].filter((tag) => tag !== BACKWARD));
    if (late) tags.add(BACKWARD);
    if (origin.source !== null) {
      const inputs = [this.at(origin.source, late)];
      return this.add({ ...node, name: node.op?.name ?? node.name, inputs, tags });
    }
    const { shape, strides } = node.metas[value.output] as ValueMeta;
    return this.add({
      kind: 'call',
      name: 'asStrided',
      op: opByName('asStrided') ?? null,
      inputs: [now],
      params: { size: shape, stride: strides, storageOffset: 0 },
      metas: node.metas.slice(value.output, value.output + 1),
      mode: now.node.mode,
      origin: now.node.origin,
      tags,
    });
  }

  private add(fields: Parameters<Graph['add']>[0]): NodeValue {
    return { node: this.graph.add(fields), output: 0 };
  }
}

const isCall = ({ kind }: Node): boolean => kind === 'call';

const isLate = (node: Node): boolean => node.tags.has(BACKWARD);

/** The memories that calls of the graph write into and that may be rewritten. */
function suitedMemory(graph: Graph, memory: Memory): Map<object, Rewritten> {
  const suited = new Map<object, Rewritten>();
  for (const { into } of graph.nodes) {
    if (into === null || 'number' in into) continue;
    const base = memory.base(into);
    if (base.node.kind !== 'call' || isAlias(base.node)) continue;
    suited.set(memory.of(into), { version: 0, written: base, now: base });
  }
  const drop = (value: Value): void => {
    if ('node' in value) suited.delete(memory.of(value));
  };
  for (const node of graph.nodes) {
    const { into } = node;
    if (node.kind === 'effect') node.inputs.forEach(drop);
    else if (into === null) writtenValues(node).forEach(drop);
    else if ('node' in into && isLate(memory.base(into).node) !== isLate(node)) drop(into);
  }
  return suited;
}

/** Whether a view has all elements of its base, and each of them once. */
function fillsSame(value: NodeValue, base: NodeValue): boolean {
  const [part, whole] = [value, base].map(({ node, output }) => node.metas[output]);
  return (
    part !== undefined &&
    whole !== undefined &&
    isNonOverlappingAndDense(part.shape, part.strides) &&
    isNonOverlappingAndDense(whole.shape, whole.strides) &&
    numelOf(part.shape) === numelOf(whole.shape)
  );
}

/** Whether the call, with memory of its own, returns a tensor of this dtype and layout. */
function gives(node: Node, { dtype, shape, strides }: ValueMeta): boolean {
  const { op, params, inputs } = node;
  if (op === null || op.compute !== null || op.move !== null) return false;
  // A number that differs from run to run has no dtype here.
  if (inputs.some((value) => 'node' in value && value.node.metas[value.output] === undefined))
    return false;
  const [result] = op.meta(standIns(node), params);
  if (result === undefined || result.dtype !== dtype || !sameShape(result.shape, shape))
    return false;
  return sameShape(result.strides ?? contiguousStrides(shape), strides);
}
