/** The graph of a captured function: calls of ops in execution order. */
import type { GradMode } from '../autograd/grad-mode.js';
import type { AnyOp } from '../core/op.js';
import type { DrawSource } from '../core/random.js';
import { formatShape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';

/** The kind of a node: an input, a tensor from outside, a call of an op, an effect beside ops. */
export type NodeKind = 'placeholder' | 'constant' | 'call' | 'effect';

/** A use of a value: an output of a node, or a plain number. */
export type Value = { node: Node; output: number } | { number: Tensor };

/** One step of a graph. */
export class Node {
  /** The kind of the node. */
  readonly kind: NodeKind;
  /** The name of the node in printed graphs. */
  readonly name: string;
  /** The op of a call; null for other nodes. */
  readonly op: AnyOp | null;
  /** The operands of a call. */
  inputs: Value[];
  /** The parameters of a call. */
  readonly params: object;
  /** The value that an in-place call writes into. */
  into: Value | null = null;
  /** Dtype and shape of each output, for printing. */
  readonly metas: readonly string[];
  /** A tensor from outside the function. */
  readonly tensor: Tensor | null;
  /** Applies an effect to the real tensors. */
  readonly effect: ((...tensors: Tensor[]) => void) | null;
  /** The grad mode that the function set for this call; null for the mode of the caller. */
  readonly mode: GradMode | null;
  /** The source that a random call draws from at every run. */
  readonly generator: DrawSource | null;

  constructor(fields: {
    kind: NodeKind;
    name: string;
    op?: AnyOp;
    inputs?: Value[];
    params?: object;
    metas?: readonly string[];
    tensor?: Tensor;
    effect?: (...tensors: Tensor[]) => void;
    mode?: GradMode | null;
    generator?: DrawSource | null;
  }) {
    this.kind = fields.kind;
    this.name = fields.name;
    this.op = fields.op ?? null;
    this.inputs = fields.inputs ?? [];
    this.params = fields.params ?? {};
    this.metas = fields.metas ?? [];
    this.tensor = fields.tensor ?? null;
    this.effect = fields.effect ?? null;
    this.mode = fields.mode ?? null;
    this.generator = fields.generator ?? null;
  }
}

/** Nodes in execution order, and the values that the function returns. */
export class Graph {
  /** All nodes, each after the nodes that it reads. */
  readonly nodes: Node[] = [];
  /** The results. */
  outputs: Value[] = [];

  /** The calls of ops. */
  get callNodes(): Node[] {
    return this.nodes.filter((n) => n.kind === 'call');
  }

  /** The graph as text, one line for each node. */
  toString(): string {
    return [...this.nodes.map(showNode), `return ${this.outputs.map(show).join(', ')}`].join('\n');
  }
}

function showNode(n: Node): string {
  if (n.kind === 'placeholder') return `%${n.name}: ${n.metas[0]} = input`;
  if (n.kind === 'constant') return `%${n.name}: ${n.metas[0]} = constant`;
  const operands = [...(n.into ? [n.into] : []), ...n.inputs].map(show);
  const call = `${n.op?.name ?? n.name}${n.into ? '_' : ''}(${operands.join(', ')})`;
  if (n.kind === 'effect') return call;
  const mode =
    n.mode === null
      ? ''
      : `  under ${n.mode.enabled ? 'enableGrad' : n.mode.inference ? 'inferenceMode' : 'noGrad'}`;
  return `%${n.name}: ${n.metas.join(', ')} = ${call}${formatParams(n.params)}${mode}`;
}

function show(value: Value): string {
  if ('number' in value) return String(value.number.scalarValue);
  return value.output === 0 ? `%${value.node.name}` : `%${value.node.name}.${value.output}`;
}

function formatParams(params: object): string {
  const shown = Object.entries(params).filter(
    ([, v]) => ['number', 'boolean', 'string'].includes(typeof v) || Array.isArray(v),
  );
  return shown.length
    ? `  { ${shown.map(([k, v]) => `${k}: ${Array.isArray(v) ? formatShape(v) : v}`).join(', ')} }`
    : '';
}
