/**
 * The types of the op table. An op is one entry in lib/ops, which has everything that a layer needs
 * to know of the op; no other file mentions an op by name.
 */
import type { AutocastPolicy } from './autocast.js';
import type { CommandWriter, MemoryAccess } from './command.js';
import { inFloat32 } from './decompose.js';
import type { Device } from './device.js';
import type { DType } from './dtype.js';
import { ShardwiseError } from './errors.js';
import type { JoinRule, VjpRule } from './gradient-rules.js';
import { type ParamSchema, type ParamsOf, type ParamsPlan, planParams } from './op-params.js';
import type { Shape } from './shape.js';
import type { ShardingRule } from './sharding-rule.js';
import type { Tensor } from './tensor.js';

/** The metadata of an output, known without running the kernel. */
export interface OutputMeta {
  shape: Shape;
  /** null means row-major. */
  strides: Shape | null;
  dtype: DType;
  device: Device;
}

/** The result of a view op: another window on the same storage. */
export interface ViewMeta {
  shape: Shape;
  strides: Shape;
  offset: number;
  /** Of a view that reads the bytes as another dtype; else that of the input. */
  dtype?: DType;
}

/** Properties by which layers and graph passes select ops, instead of by name. */
export type Trait =
  /** Reads each input element only for the output element at the same position. */
  | 'pointwise'
  /** The kernel writes outputs with any strides. */
  | 'strided-output'
  /** The kernel does not read the old values of its outputs. */
  | 'overwrites'
  /** The kernel gets several windows of one output, whose memory is allocated before it runs. */
  | 'windowed-output'
  /** Values of the output are undefined. */
  | 'uninitialized'
  /** Takes much longer than reading its operands: products, attention, sorting. */
  | 'compute-bound'
  /** Communicates with other ranks. */
  | 'collective'
  /** Returns the result of a collective as one that is ready. */
  | 'wait'
  /** Converts between local tensors and distributed ones. */
  | 'placement'
  /** Copies its input, converted to a dtype; so its gradient may have the dtype of the input. */
  | 'converts'
  /** Its gradient rule gives the gradient of the output as that of each input. */
  | 'passes-gradient'
  /**
   * An op of the program that communicates: it takes distributed tensors as they are, and fake
   * tensors run it, too.
   */
  | 'communicates'
  /** Beside that: frees memory that another op has filled, and communicates nothing. */
  | 'frees'
  /** The public function of its name takes the option `out`. */
  | 'out';

/** A sample call: the table's generated tests run every op on its samples. */
export interface Sample<P, Inputs extends readonly Tensor[] = readonly Tensor[]> {
  inputs: Inputs;
  params: P;
}

// biome-ignore lint/suspicious/noExplicitAny: each entry is typed where it is defined.
export type AnyOp = Op<any>;

/**
 * One entry of the op table, as the layers see it. `P` is the type of its parameters; `Inputs` is
 * the tuple that its samples have.
 */
export interface Op<P, Inputs extends readonly Tensor[] = readonly Tensor[]> {
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
   * Computes with other ops, on real tensors and without recording: ops of users, collectives,
   * changes of placement. Null for all others.
   */
  readonly compute: ((inputs: readonly Tensor[], params: P) => Tensor[]) | null;
  /** Allocates and copies, without a kernel of its own. Null where a kernel computes. */
  readonly move:
    | ((inputs: readonly Tensor[], params: P, memory: MemoryAccess, into: Tensor | null) => Tensor)
    | null;
  /**
   * Shapes and dtypes that the kernel requires of what `lower` writes, in the notation of
   * operands.ts; the addon checks commands by it. Null for pointwise ops, whose operands follow
   * from `pointwise`, and without a kernel.
   */
  readonly operands: string | null;
  /** The parameters that the kernel and the sharding decision get. */
  readonly params: ParamsPlan;
  /**
   * Writes operands. Default: inputs, then outputs. The backend appends the kernel's parameters.
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
   * The same computation in other ops: the reference in tests, and the way in which a backward op
   * gets a second derivative.
   */
  readonly decompose: ((inputs: readonly Tensor[], params: P) => readonly Tensor[]) | null;
  readonly vjp: VjpRule<P> | null;
  /**
   * Of views that are parts of a tensor: the gradient rule of several at once, so that their
   * gradients are written into one tensor. Its ops are not recorded. Null for other ops.
   */
  readonly joinGradients: JoinRule<P> | null;
  /** Inputs and outputs that the gradient rule reads. */
  readonly savesInputs: (
    needs: (i: number) => boolean,
    inputs: readonly Tensor[],
  ) => readonly number[];
  readonly savesOutputs: readonly number[] | 'all';
  /** Whether the gradient rule reads the strides of the inputs. */
  readonly savesStrides: boolean;
  /**
   * Outputs that have a gradient; null means all floating ones. Statistics kept for backward have
   * none.
   */
  readonly differentiable: readonly number[] | null;
  readonly samples: () => readonly Sample<P, Inputs>[];
  /**
   * Calls the public function with these operands. Present where the op accepts fewer layouts than
   * the function, which copies the others; the tests of layouts then call the function.
   */
  readonly publicCall: ((inputs: readonly Tensor[], params: P) => Tensor | Tensor[]) | null;
  /** The function that programs call, of an op that is only a step of it; errors name that. */
  readonly calledBy: string | null;
  /**
   * Of an op that computes with others: whether its gradient rule keeps no gradients. They are then
   * freed and taken over as those of ops with kernels.
   */
  readonly keepsNoGrads: boolean;
  /** What decides the ops of the gradient beside operands and parameters; null for nothing. */
  readonly gradientState: ((params: P) => unknown) | null;
  /** The ops that lowered graphs have in place of one that computes with others. Null for none. */
  readonly parts: ((inputs: readonly Tensor[], params: P) => readonly Tensor[]) | null;
  /**
   * The inputs whose memory the call fills or frees without an order by values, and on which its
   * results may be windows: passes keep readers of that memory where they are. Null for none.
   */
  readonly manages: ((params: P) => readonly number[]) | null;
  /**
   * Whether backward of a graph runs the call again, instead of keeping its results. Null if a
   * partition decides.
   */
  readonly runsAgain: ((params: P) => boolean) | null;
  /** Whether a call computes by its random state: not where it drops nothing. */
  readonly isRandom: (params: P) => boolean;
  /** The policy of mixed precision for the operands; null if it does not convert them. */
  readonly autocast: AutocastPolicy | null;
  /**
   * Whether it computes in float32 and gives float32 for 16-bit operands too. A policy of float32
   * then leaves them as they are: the result is that of converted ones, without a copy.
   */
  readonly widens: boolean;
  /** Whether it takes a 16-bit dtype, `low`, and then gives output 0 in it as last output, too. */
  readonly writesLow: boolean;
  /**
   * The C expression of a pointwise op, for both backends and for fusion; see
   * native/generated/pointwise_ops.inc.
   */
  readonly pointwise: PointwiseSpec | null;
  /** How it runs on sharded tensors; null if it runs on replicated ones only. */
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
  cost: PointwiseCost;
  /**
   * Sets of inputs in which it is jointly linear when the others are constant: [[0, 1]] for a sum,
   * [[0], [1]] for a product.
   */
  linear?: readonly (readonly number[])[];
  /** Whether it returns the larger or the smaller of its two inputs. */
  extreme?: 'max' | 'min';
}

/**
 * How much work one element is; the CPU shares a call among threads by it. `memory`: less than
 * reading the element. `vector`: many instructions, in vectors. `libm`: the same in float, a
 * library call in double and int64. `division`: `memory` for floats, a slow instruction for int64.
 */
export type PointwiseCost = 'memory' | 'division' | 'vector' | 'libm';

/** A tensor for each name; without names, a list of any length. */
type TensorsOf<Names extends readonly string[]> = { [K in keyof Names]: Tensor };

/**
 * The fields of a definition; the others have defaults. Rules get the inputs and outputs as tuples
 * of the named operands, and the parameters as the schema types them.
 */
export interface OpDefinition<
  S extends ParamSchema = ParamSchema,
  I extends readonly string[] = readonly string[],
  O extends readonly string[] = readonly string[],
> {
  name: string;
  doc: string;
  /** Names of the inputs; an optional one ends in `?`. Left out: a list of any length. */
  inputs?: I;
  /** Names of the outputs; left out: any number. */
  outputs?: O;
  params?: S;
  samples: () => readonly Sample<ParamsOf<S>, TensorsOf<I>>[];
  traits?: readonly Trait[];
  meta?: (inputs: TensorsOf<I>, params: ParamsOf<S>) => readonly OutputMeta[];
  view?: (input: Tensor, params: ParamsOf<S>) => ViewMeta;
  kernel?: string | null;
  compute?: (inputs: TensorsOf<I>, params: ParamsOf<S>) => Tensor[];
  move?: (
    inputs: TensorsOf<I>,
    params: ParamsOf<S>,
    memory: MemoryAccess,
    into: Tensor | null,
  ) => Tensor;
  operands?: string;
  lower?: (
    command: CommandWriter,
    inputs: TensorsOf<I>,
    outputs: TensorsOf<O>,
    params: ParamsOf<S>,
  ) => void;
  updates?: number;
  mutates?: (inputs: TensorsOf<I>, params: ParamsOf<S>) => readonly number[];
  decompose?: (inputs: TensorsOf<I>, params: ParamsOf<S>) => readonly Tensor[];
  vjp: VjpRule<ParamsOf<S>> | 'not-differentiable';
  joinGradients?: JoinRule<ParamsOf<S>>;
  saves?: {
    inputs?:
      | readonly number[]
      | ((needs: (i: number) => boolean, inputs: readonly Tensor[]) => readonly number[]);
    outputs?: readonly number[] | 'all';
    strides?: boolean;
  };
  differentiable?: readonly number[];
  keepsNoGrads?: boolean;
  gradientState?: (params: ParamsOf<S>) => unknown;
  manages?: (params: ParamsOf<S>) => readonly number[];
  runsAgain?: (params: ParamsOf<S>) => boolean;
  isRandom?: (params: ParamsOf<S>) => boolean;
  calledBy?: string;
  publicCall?: (inputs: TensorsOf<I>, params: ParamsOf<S>) => Tensor | Tensor[];
  autocast?: AutocastPolicy;
  widens?: boolean;
  writesLow?: boolean;
  pointwise?: PointwiseSpec;
  sharding?: ShardingRule<ParamsOf<S>>;
}

const table: AnyOp[] = [];
const byName = new Map<string, AnyOp>();

/** Adds an entry to the table. @throws ShardwiseError if the name is taken. */
export function defineOp<
  const S extends ParamSchema = Record<never, never>,
  const I extends readonly string[] = readonly string[],
  const O extends readonly string[] = readonly string[],
>(definition: OpDefinition<S, I, O>): Op<ParamsOf<S>, TensorsOf<I>> {
  const { name } = definition;
  if (byName.has(name))
    throw new ShardwiseError('ERR_OP', `an op named "${name}" is already defined`);
  // The layers pass the inputs and parameters that the definition's own functions made.
  const op = entryOf(table.length, definition as unknown as OpDefinition);
  table.push(op);
  byName.set(name, op);
  return op as unknown as Op<ParamsOf<S>, TensorsOf<I>>;
}

function entryOf(id: number, definition: OpDefinition): AnyOp {
  const { name, saves, meta = missingMeta, view = null } = definition;
  const inputs = saves?.inputs ?? [];
  const params = planParams(definition.params ?? {});
  return {
    id,
    name,
    doc: definition.doc,
    traits: definition.traits ?? [],
    meta,
    view,
    kernel:
      definition.kernel === undefined && !view ? snakeCase(name) : (definition.kernel ?? null),
    compute: definition.compute ?? null,
    move: definition.move ?? null,
    operands: definition.operands ?? null,
    params,
    lower: definition.lower ?? null,
    updates: definition.updates ?? -1,
    mutates: definition.mutates ?? null,
    decompose: definition.decompose ? inFloat32(definition.decompose, meta) : null,
    vjp: definition.vjp === 'not-differentiable' ? null : definition.vjp,
    joinGradients: definition.joinGradients ?? null,
    savesInputs: typeof inputs === 'function' ? inputs : () => inputs,
    savesOutputs: saves?.outputs ?? [],
    savesStrides: saves?.strides ?? definition.joinGradients !== undefined,
    differentiable: definition.differentiable ?? null,
    samples: definition.samples,
    calledBy: definition.calledBy ?? null,
    publicCall: definition.publicCall ?? null,
    keepsNoGrads: definition.keepsNoGrads ?? false,
    gradientState: definition.gradientState ?? null,
    parts: null,
    manages: definition.manages ?? null,
    runsAgain: definition.runsAgain ?? null,
    isRandom: definition.isRandom ?? (() => params.hasRandomState),
    autocast: definition.autocast ?? null,
    widens: definition.widens ?? false,
    writesLow: definition.writesLow ?? false,
    pointwise: definition.pointwise ?? null,
    sharding: definition.sharding ?? null,
  };
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

/**
 * `layerNorm` to `layer_norm`: the names of kernels and of their files follow from that of the op.
 */
export function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`);
}
