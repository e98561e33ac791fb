/**
 * The sequences of ops that a function has run, as a tree: calls that begin alike share nodes. A
 * run walks down the tree, so an op that is known costs a comparison and no shape rule.
 */
import type { AnyOp } from '../../core/op.js';
import { numelOf, sameShape } from '../../core/shape.js';
import type { Tensor } from '../../core/tensor.js';
import type { RunValue } from '../graph/effects.js';
import { metaOf, type NodeOrigin, type ValueMeta } from '../graph/node.js';

/** Stands for the number of a value where the operand is a plain number. */
export const PLAIN = -1;

/** A call, with the numbers of its values. */
export interface LazyCall {
  readonly op: AnyOp;
  readonly inputs: readonly Tensor[];
  readonly params: object;
  /** The values of the inputs, or {@link PLAIN}. */
  readonly numbers: readonly number[];
  /** The tensor that the call writes into, and the number of its value; null and -1 for none. */
  readonly target: Tensor | null;
  readonly into: number;
  /** Values from this number on are tensors that the segment meets here. */
  readonly known: number;
  /** The number of its first output. */
  readonly first: number;
}

/** What becomes of a call, which follows from those before it. */
export interface CallFacts {
  /** The outputs. */
  readonly metas: readonly ValueMeta[];
  readonly origin: NodeOrigin;
}

/** An operand that is compared: a plain number, or a tensor that the segment has not met before. */
interface ComparedOperand {
  /** The position among the inputs; -1 for the target. */
  readonly at: number;
  readonly meta: ValueMeta;
  readonly plain: number;
}

/** Calls as a compiled graph. */
export interface SegmentForm {
  /** The values that it returns, by number. */
  readonly outputs: readonly number[];
  /** Takes tensors from before the segment, and the random states of draws. */
  readonly run: (...inputs: readonly RunValue[]) => readonly Tensor[];
}

/** One op, after those of its ancestors. */
export class TraceNode implements CallFacts {
  readonly op: AnyOp;
  readonly params: Readonly<Record<string, unknown>>;
  readonly numbers: readonly number[];
  readonly into: number;
  readonly first: number;
  readonly metas: readonly ValueMeta[];
  readonly origin: NodeOrigin;
  /** Whether each run has plain numbers of its own, which are inputs of the graph. */
  readonly takesNumbers: boolean;
  /** The plain numbers among the inputs; null in the places of others. */
  readonly plain: readonly (Tensor | null)[];
  /** The bytes of each output. */
  readonly bytes: readonly number[];
  readonly followers = new Followers();
  /** What runs the calls up to this one; more than one if they returned different results. */
  readonly forms: SegmentForm[] = [];
  private readonly compared: readonly ComparedOperand[];

  constructor(call: LazyCall, facts: CallFacts, takesNumbers: boolean) {
    const { op, inputs, params, numbers, into, first } = call;
    this.op = op;
    this.params = params as Record<string, unknown>;
    this.numbers = [...numbers];
    this.into = into;
    this.first = first;
    this.takesNumbers = takesNumbers;
    this.metas = facts.metas;
    this.bytes = facts.metas.map(({ shape, dtype }) => numelOf(shape) * dtype.itemsize);
    this.origin = facts.origin;
    this.plain = inputs.map((t) => (t.storage === null ? t : null));
    this.compared = comparedOperands(call);
  }

  /** Whether the call is this one; `anyNumbers`: whatever the plain numbers are. */
  matches({ op, numbers, into, target, inputs, params }: LazyCall, anyNumbers: boolean): boolean {
    if (op !== this.op || into !== this.into || numbers.length !== this.numbers.length)
      return false;
    for (let i = 0; i < numbers.length; i++) if (numbers[i] !== this.numbers[i]) return false;
    const { compared } = this;
    for (let i = 0; i < compared.length; i++) {
      const expected = compared[i] as ComparedOperand;
      const t = expected.at < 0 ? target : inputs[expected.at];
      if (!isAsExpected(t as Tensor, expected, anyNumbers)) return false;
    }
    const names = op.params.keyed;
    for (let i = 0; i < names.length; i++) {
      const name = names[i] as string;
      if (!sameParam((params as Record<string, unknown>)[name], this.params[name])) return false;
    }
    return true;
  }
}

/** The nodes of calls that have followed one, or that have come first. */
export class Followers {
  private readonly nodes: TraceNode[] = [];

  find(call: LazyCall): TraceNode | undefined {
    const { nodes } = this;
    for (let i = 0; i < nodes.length; i++) {
      const node = nodes[i] as TraceNode;
      if (node.matches(call, node.takesNumbers)) return node;
    }
    return undefined;
  }

  /** Adds a call. If it differs from a known one in plain numbers alone, these become inputs. */
  add(call: LazyCall, facts: CallFacts): TraceNode {
    const takesNumbers = this.nodes.some((node) => node.matches(call, true));
    const node = new TraceNode(call, facts, takesNumbers);
    this.nodes.push(node);
    return node;
  }
}

function comparedOperands({ inputs, numbers, target, into, known }: LazyCall): ComparedOperand[] {
  const operand = (t: Tensor, at: number): ComparedOperand => ({
    at,
    meta: metaOf(t),
    plain: t.scalarValue,
  });
  const compared = inputs.flatMap((t, at) =>
    numbers[at] === PLAIN || (numbers[at] as number) >= known ? [operand(t, at)] : [],
  );
  return target !== null && into >= known ? [...compared, operand(target, -1)] : compared;
}

function isAsExpected(t: Tensor, { meta, plain }: ComparedOperand, anyNumbers: boolean): boolean {
  return (
    t.dtype === meta.dtype &&
    t.device === meta.device &&
    (anyNumbers || t.storage !== null || Object.is(t.scalarValue, plain)) &&
    (t.sizes === meta.shape || sameShape(t.sizes, meta.shape)) &&
    (t.strides === meta.strides || sameShape(t.strides, meta.strides))
  );
}

function sameParam(a: unknown, b: unknown): boolean {
  if (Object.is(a, b)) return true;
  if (!Array.isArray(a) || !Array.isArray(b) || a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (!sameParam(a[i], b[i])) return false;
  return true;
}
