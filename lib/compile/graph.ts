/** The graph of a traced function: ops of the op table in execution order. */
import { isGradEnabled, setGradEnabled } from '../autograd/grad-mode.js';
import { dispatch } from '../core/dispatch.js';
import { CompileError } from '../core/errors.js';
import type { AnyOp } from '../core/op.js';
import { defaultGenerator } from '../core/random.js';
import { formatShape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';

/** What a node is: an input, a tensor from outside, values made inside, an op call, an effect that is not an op. */
export type NodeKind = 'placeholder' | 'constant' | 'literal' | 'call' | 'effect';

/** A use of a value: an output of a node, or a plain number. */
export type Value = { node: Node; output: number } | { number: Tensor };

/** One step of a graph. */
export class Node {
  readonly kind: NodeKind;
  readonly name: string;
  readonly op: AnyOp | null;
  inputs: Value[];
  readonly params: object;
  /** The value that an in-place call writes into. */
  into: Value | null = null;
  /** For printing: dtype and shape of each output. */
  readonly metas: readonly string[];
  /** Whether autograd records the call. */
  readonly recordsGrad: boolean;
  /** A tensor from outside the function, or the values of a literal. */
  readonly tensor: Tensor | null;
  /** What an effect does to the real tensors. */
  readonly effect: ((...tensors: Tensor[]) => void) | null;

  constructor(fields: {
    kind: NodeKind;
    name: string;
    op?: AnyOp;
    inputs?: Value[];
    params?: object;
    metas?: readonly string[];
    recordsGrad?: boolean;
    tensor?: Tensor;
    effect?: (...tensors: Tensor[]) => void;
  }) {
    this.kind = fields.kind;
    this.name = fields.name;
    this.op = fields.op ?? null;
    this.inputs = fields.inputs ?? [];
    this.params = fields.params ?? {};
    this.metas = fields.metas ?? [];
    this.recordsGrad = fields.recordsGrad ?? true;
    this.tensor = fields.tensor ?? null;
    this.effect = fields.effect ?? null;
  }
}

/** Nodes in execution order, and the values that the function returns. */
export class Graph {
  readonly nodes: Node[] = [];
  outputs: Value[] = [];

  /** Op calls, as counters count them. */
  get callNodes(): Node[] {
    return this.nodes.filter((n) => n.kind === 'call');
  }

  /** The graph as text, one node a line. */
  toString(): string {
    const lines = this.nodes.map((n) => {
      if (n.kind === 'placeholder') return `%${n.name}: ${n.metas[0]} = input`;
      if (n.kind === 'constant' || n.kind === 'literal') return `%${n.name}: ${n.metas[0]} = ${n.kind}`;
      const call = `${n.op?.name ?? n.name}${n.into ? '_' : ''}(${[...(n.into ? [show(n.into)] : []), ...n.inputs.map(show)].join(', ')})`;
      return n.kind === 'effect' ? call : `%${n.name}: ${n.metas.join(', ')} = ${call}${formatParams(n.params)}`;
    });
    return [...lines, `return ${this.outputs.map(show).join(', ')}`].join('\n');
  }
}

function show(value: Value): string {
  if ('number' in value) return String(value.number.scalarValue);
  return value.output === 0 ? `%${value.node.name}` : `%${value.node.name}.${value.output}`;
}

function formatParams(params: object): string {
  const shown = Object.entries(params).filter(([, v]) => ['number', 'boolean', 'string'].includes(typeof v) || Array.isArray(v));
  return shown.length ? `  { ${shown.map(([k, v]) => `${k}: ${Array.isArray(v) ? formatShape(v) : v}`).join(', ')} }` : '';
}

/** A graph that can be called. Edits take effect at {@link GraphModule.recompile}. */
export class GraphModule {
  readonly graph: Graph;
  private plan: readonly Node[] = [];
  private results: readonly Value[] = [];
  private text = '';

  constructor(graph: Graph) {
    this.graph = graph;
    this.recompile();
  }

  /** The compiled form as text. */
  get code(): string {
    return this.text;
  }

  /** Takes over edits of the graph. @throws CompileError if a node uses one that does not come before it */
  recompile(): void {
    const known = new Set<Node>();
    for (const node of this.graph.nodes) {
      for (const value of [...node.inputs, ...(node.into ? [node.into] : [])]) {
        if ('node' in value && !known.has(value.node)) throw new CompileError(`node %${node.name} uses %${value.node.name}, which does not come before it`);
      }
      known.add(node);
    }
    this.plan = [...this.graph.nodes];
    this.results = [...this.graph.outputs];
    this.text = this.graph.toString();
  }

  /** Runs the graph on real tensors, one for each placeholder; autograd records the calls that it recorded in the capture. */
  forward(...inputs: readonly Tensor[]): Tensor[] {
    const mode = isGradEnabled();
    try {
      return this.run(inputs);
    } finally {
      setGradEnabled(mode);
    }
  }

  private run(inputs: readonly Tensor[]): Tensor[] {
    const values = new Map<Node, readonly Tensor[]>();
    const read = (value: Value): Tensor => ('number' in value ? value.number : ((values.get(value.node) as readonly Tensor[])[value.output] as Tensor));
    let next = 0;
    for (const node of this.plan) {
      if (node.kind === 'placeholder') values.set(node, [inputs[next++] as Tensor]);
      else if (node.kind === 'constant') values.set(node, [node.tensor as Tensor]);
      else if (node.kind === 'literal') values.set(node, [(node.tensor as Tensor).clone()]);
      else if (node.kind === 'effect') node.effect?.(...node.inputs.map(read));
      else values.set(node, runCall(node, node.inputs.map(read), node.into === null ? null : read(node.into)));
    }
    return this.results.map(read);
  }
}

/** Random ops draw anew at every run. */
function runCall(node: Node, inputs: readonly Tensor[], into: Tensor | null): readonly Tensor[] {
  const op = node.op as AnyOp;
  setGradEnabled(node.recordsGrad);
  const params = op.traits.includes('random') ? { ...node.params, ...defaultGenerator.next() } : node.params;
  return dispatch(op, inputs, params, into);
}
