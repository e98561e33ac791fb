/**
 * The op table's vocabulary. An op is one entry in lib/ops: everything that any layer needs to know
 * of it stands there, and no other file mentions an op by name.
 */
import type { AutocastPolicy } from './autocast.js';
import type { CommandWriter } from './command.js';
import { inFloat32 } from './decompose.js';
import type { Device } from './device.js';
import type { DType } from './dtype.js';
import { ShardwiseError } from './errors.js';
import type { Shape } from './shape.js';
import type { ShardingRule } from './sharding-rule.js';
import type { Tensor } from './tensor.js';

/** What an output will be: known before, and without, running the kernel. */
export interface OutputMeta {
  shape: Shape;
  /** null means row-major. */
  strides: Shape | null;
  dtype: DType;
  device: Device;
}

/** What a view op computes: another window on the same storage. */
export interface ViewMeta {
  shape: Shape;
  strides: Shape;
  offset: number;
}

/** Structural properties that layers and passes ask for instead of names. */
export type Trait =
  | 'pointwise'
  | 'view'
  | 'random'
  | 'reduction'
  | 'mutates'
  | 'transfer'
  | 'uninitialized'
  | 'join'
  | 'collective'
  | 'placement'
  | 'strided-output';

/** What a gradient rule sees of the forward call. */
export interface VjpContext<P> {
  readonly params: P;
  /** Whether input `i` needs a gradient; a rule returns null for the others. */
  needs(i: number): boolean;
  /** A saved input. @throws InPlaceError if it was overwritten since. */
  input(i: number): Tensor;
  /** A saved output. @throws InPlaceError if it was overwritten since. */
  output(i: number): Tensor;
  /**
   * A saved output to overwrite and to give away, the last that the rule reads; only for one that
   * the op's caller has let go of. Null where another tensor shows its memory, or another backward
   * may come.
   */
  takeOutput(i: number): Tensor | null;
  inputShape(i: number): Shape;
  /** How input `i` lay in memory; only for an op whose definition saves strides. */
  inputStrides(i: number): Shape;
  inputDtype(i: number): DType;
  inputDevice(i: number): Device;
  /**
   * Whether what the rule does is recorded: its result must then be right in a neighbourhood, not
   * only where it is.
   */
  createsGraph(): boolean;
}

/**
 * Vector-Jacobian product: from the outputs' gradients (null where undefined) to the inputs',
 * written in ops.
 */
export type VjpRule<P> = (ctx: VjpContext<P>, ...grads: Tensor[]) => readonly (Tensor | null)[];

/** A sample call: the table's generated tests run every op on its samples. */
export interface Sample<P> {
  inputs: readonly Tensor[];
  params: P;
}

// biome-ignore lint/suspicious/noExplicitAny: the table is heterogeneous; each entry is typed where it is defined.
export type AnyOp = Op<any>;

/** One entry of the op table. */
export interface Op<P> {
  readonly id: number;
  readonly name: string;
  readonly doc: string;
  readonly traits: readonly Trait[];
  /** Shape and dtype rule; bad input is reported here. View ops have `view` instead. */
  readonly meta: (inputs: readonly Tensor[], params: P) => readonly OutputMeta[];
  readonly view: ((input: Tensor, params: P) => ViewMeta) | null;
  /**
   * snake_case name of the kernel in native/generated/kernel_table.def; null for views and
   * compositions.
   */
  readonly kernel: string | null;
  /**
   * Computes with other ops, on real tensors and without recording: ops of users. Null for all
   * others.
   */
  readonly compute: ((inputs: readonly Tensor[], params: P) => Tensor[]) | null;
  /** Names of the kernel's parameters, the fields of its struct in native/generated/op_params.h. */
  readonly kernelParams: readonly string[];
  /**
   * Writes operands and parameters. Default: inputs, then outputs, then `kernelParams` read from
   * params.
   */
  readonly lower:
    | ((
        command: CommandWriter,
        inputs: readonly Tensor[],
        outputs: readonly Tensor[],
        params: P,
      ) => void)
    | null;
  /**
   * Index of the input whose values the output starts from (scatter and its like): copied first
   * unless run in place.
   */
  readonly updates: number;
  /** Inputs that the kernel overwrites (optimizer steps). */
  readonly mutates: ((inputs: readonly Tensor[], params: P) => readonly number[]) | null;
  /**
   * The same in other ops: the reference in tests, and what makes a backward op differentiable
   * again.
   */
  readonly decompose: ((inputs: readonly Tensor[], params: P) => readonly Tensor[]) | null;
  readonly vjp: VjpRule<P> | null;
  /** Inputs and outputs that the gradient rule reads. */
  readonly savesInputs: (
    needs: (i: number) => boolean,
    inputs: readonly Tensor[],
  ) => readonly number[];
  readonly savesOutputs: readonly number[] | 'all';
  /** Whether the gradient rule asks how the inputs lay in memory. */
  readonly savesStrides: boolean;
  /**
   * Outputs that have a gradient; null means all floating ones. Statistics kept for backward have
   * none.
   */
  readonly differentiable: readonly number[] | null;
  readonly samples: () => readonly Sample<P>[];
  /** What mixed precision does to the operands; null: nothing. */
  readonly autocast: AutocastPolicy | null;
  /**
   * The C expression of a pointwise op, for both backends and for fusion; see
   * native/generated/pointwise_ops.inc.
   */
  readonly pointwise: PointwiseSpec | null;
  /** How it runs on sharded tensors; null: on replicated ones only. */
  readonly sharding: ShardingRule<P> | null;
}

/** How a pointwise op computes: an expression over x, y, z and p0..p3 in the compute type T. */
export interface PointwiseSpec {
  arity: 1 | 2 | 3;
  /** F: float and double. A: these and int64. I: int64 only. */
  classes: 'F' | 'A' | 'I';
  result: 'SAME' | 'BOOL';
  /** Input 0 is a condition: it has no part in promotion. */
  condition: boolean;
  expression: string;
  /**
   * Sets of inputs in which it is linear together while the others stay as they are: [[0, 1]] of a
   * sum, [[0], [1]] of a product.
   */
  linear?: readonly (readonly number[])[];
  /** It chooses the larger, or the smaller, of its two inputs. */
  extreme?: 'max' | 'min';
}

/** What a definition gives; the rest has defaults. */
export type OpDefinition<P> = Pick<Op<P>, 'name' | 'doc' | 'samples'> & {
  traits?: readonly Trait[];
  meta?: Op<P>['meta'];
  view?: (input: Tensor, params: P) => ViewMeta;
  kernel?: string | null;
  compute?: NonNullable<Op<P>['compute']>;
  kernelParams?: readonly string[];
  lower?: NonNullable<Op<P>['lower']>;
  updates?: number;
  mutates?: NonNullable<Op<P>['mutates']>;
  decompose?: NonNullable<Op<P>['decompose']>;
  vjp: VjpRule<P> | 'not-differentiable';
  saves?: {
    inputs?:
      | readonly number[]
      | ((needs: (i: number) => boolean, inputs: readonly Tensor[]) => readonly number[]);
    outputs?: readonly number[] | 'all';
    strides?: boolean;
  };
  differentiable?: readonly number[];
  autocast?: AutocastPolicy;
  pointwise?: PointwiseSpec;
  sharding?: ShardingRule<P>;
};

const table: AnyOp[] = [];
const byName = new Map<string, AnyOp>();

/** Adds an entry to the table. @throws ShardwiseError if the name is taken. */
export function defineOp<P>(definition: OpDefinition<P>): Op<P> {
  const { name, saves } = definition;
  if (byName.has(name))
    throw new ShardwiseError('ERR_OP', `an op named "${name}" is already defined`);
  const inputs = saves?.inputs ?? [];
  const op: Op<P> = {
    id: table.length,
    name,
    doc: definition.doc,
    traits: definition.traits ?? [],
    meta: definition.meta ?? missingMeta,
    view: definition.view ?? null,
    kernel:
      definition.kernel === undefined
        ? definition.view
          ? null
          : snakeCase(name)
        : definition.kernel,
    compute: definition.compute ?? null,
    kernelParams: definition.kernelParams ?? [],
    lower: definition.lower ?? null,
    updates: definition.updates ?? -1,
    mutates: definition.mutates ?? null,
    decompose:
      definition.decompose === undefined
        ? null
        : inFloat32(definition.decompose, definition.meta ?? missingMeta),
    vjp: definition.vjp === 'not-differentiable' ? null : definition.vjp,
    savesInputs: typeof inputs === 'function' ? inputs : () => inputs,
    savesOutputs: saves?.outputs ?? [],
    savesStrides: saves?.strides ?? false,
    differentiable: definition.differentiable ?? null,
    samples: definition.samples,
    autocast: definition.autocast ?? null,
    pointwise: definition.pointwise ?? null,
    sharding: definition.sharding ?? null,
  };
  table.push(op);
  byName.set(name, op);
  return op;
}

function missingMeta(): never {
  throw new ShardwiseError('ERR_OP', 'this op has neither a shape rule nor a view rule');
}

/** All entries, in order of definition. */
export function allOps(): readonly AnyOp[] {
  return table;
}

/** Finds an entry by name. */
export function opByName(name: string): AnyOp | undefined {
  return byName.get(name);
}

/** `layerNorm` to `layer_norm`: file and kernel names follow mechanically. */
export function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`);
}
