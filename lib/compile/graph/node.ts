/** The nodes of a graph, and the values that they compute. */
import type { GradMode } from '../../autograd/grad-mode.js';
import type { Device } from '../../core/device.js';
import type { DType } from '../../core/dtype.js';
import type { AnyOp } from '../../core/op.js';
import { formatShape, type Shape } from '../../core/shape.js';
import type { Tensor } from '../../core/tensor.js';
import type { EffectName } from './effects.js';
import type { SymbolicFields } from './symbols.js';

/** The kind of a node: an input, a tensor from outside, a call of an op, an effect beside ops. */
export type NodeKind = 'placeholder' | 'constant' | 'call' | 'effect';

/** A use of a value: an output of a node, or a plain number. */
export type Value = { node: Node; output: number } | { number: Tensor };

/** What is known of a tensor in a graph without running it. */
export interface ValueMeta {
  /** Sizes of the dims. */
  readonly shape: Shape;
  /** Element type. */
  readonly dtype: DType;
  /** Strides in elements. */
  readonly strides: Shape;
  /** The device of the values. */
  readonly device: Device;
  /** The placements and the mesh of a distributed tensor as text; null for a plain one. */
  readonly placements: string | null;
  /** Whether the function records a gradient for it. */
  readonly requiresGrad: boolean;
}

/** Where a node comes from. */
export interface NodeOrigin {
  /** The call site in the program; empty if it is not known. */
  readonly site: string;
  /** The path of the module whose forward made it, such as `layers.0`; empty outside of modules. */
  readonly path: string;
}

/** The fields of a new node; the others have defaults. */
export interface NodeFields {
  /** See {@link Node.kind}. */
  kind: NodeKind;
  /** See {@link Node.name}. */
  name: string;
  /** See {@link Node.op}. */
  op?: AnyOp | null;
  /** See {@link Node.effect}. */
  effect?: EffectName | null;
  /** See {@link Node.inputs}. */
  inputs?: readonly Value[];
  /** See {@link Node.params}. */
  params?: object;
  /** See {@link Node.metas}. */
  metas?: readonly ValueMeta[];
  /** See {@link Node.into}. */
  into?: Value | null;
  /** See {@link Node.tensor}. */
  tensor?: Tensor | null;
  /** See {@link Node.mode}. */
  mode?: GradMode | null;
  /** See {@link Node.draw}. */
  draw?: Node | null;
  /** See {@link Node.origin}. */
  origin?: NodeOrigin;
  /** See {@link Node.tags}. */
  tags?: ReadonlySet<string>;
  /** See {@link Node.symbolic}. */
  symbolic?: SymbolicFields | null;
}

const NOWHERE: NodeOrigin = { site: '', path: '' };
let nextId = 0;

/** One step of a graph. */
export class Node {
  /** The number of the node. A copy of a graph has nodes of the same numbers. */
  readonly id: number;
  /** The kind of the node. */
  readonly kind: NodeKind;
  /** The name of the node in printed graphs. */
  readonly name: string;
  /** The op of a call; null for other nodes. */
  readonly op: AnyOp | null;
  /** The kind of an effect; null for other nodes. */
  readonly effect: EffectName | null;
  /** The operands. */
  inputs: Value[];
  /**
   * The parameters of the call or of the effect; of an input of a step, its name in the program.
   */
  params: object;
  /** The value that an in-place call writes into. */
  into: Value | null;
  /** What is known of each output. */
  metas: readonly ValueMeta[];
  /** A tensor from outside the function. */
  readonly tensor: Tensor | null;
  /** The grad mode that the function set for this call; null for the mode of the caller. */
  readonly mode: GradMode | null;
  /** The draw whose random state a random call uses; null for calls that are not random. */
  draw: Node | null;
  /** The call site and module path. */
  readonly origin: NodeOrigin;
  /** Marks for passes, such as `mustRecompute`. */
  tags: ReadonlySet<string>;
  /** In a dynamic graph, the numbers of the node that follow from sizes; null if it has none. */
  symbolic: SymbolicFields | null;

  constructor(fields: NodeFields, id: number = nextId++) {
    this.id = id;
    this.kind = fields.kind;
    this.name = fields.name;
    this.op = fields.op ?? null;
    this.effect = fields.effect ?? null;
    this.inputs = [...(fields.inputs ?? [])];
    this.params = fields.params ?? {};
    this.into = fields.into ?? null;
    this.metas = fields.metas ?? [];
    this.tensor = fields.tensor ?? null;
    this.mode = fields.mode ?? null;
    this.draw = fields.draw ?? null;
    this.origin = fields.origin ?? NOWHERE;
    this.tags = fields.tags ?? NO_TAGS;
    this.symbolic = fields.symbolic ?? null;
  }

  /** The values that the node reads: the one it writes into, its draw, its inputs. */
  get reads(): readonly Value[] {
    const { into, draw, inputs } = this;
    if (into === null && draw === null) return inputs;
    return [
      ...(into === null ? [] : [into]),
      ...inputs,
      ...(draw === null ? [] : [{ node: draw, output: 0 }]),
    ];
  }
}

const NO_TAGS: ReadonlySet<string> = new Set();

/** What a graph knows of a tensor. @internal */
export function metaOf(t: Tensor): ValueMeta {
  return {
    shape: t.sizes,
    dtype: t.dtype,
    strides: t.strides,
    device: t.device,
    placements: t.sharding === null ? null : String(t.sharding.spec),
    requiresGrad: t.isTracked,
  };
}

/** Dtype and shape as text, such as `float32[2, 3]`. @internal */
export function formatMeta({ dtype, shape }: Pick<ValueMeta, 'dtype' | 'shape'>): string {
  return `${dtype.name}${formatShape(shape)}`;
}

/** Whether two uses are of the same value. @internal */
export function sameValue(a: Value, b: Value): boolean {
  if ('number' in a || 'number' in b)
    return 'number' in a && 'number' in b && a.number === b.number;
  return a.node === b.node && a.output === b.output;
}
