/**
 * Defines pointwise ops: one scalar expression gives the shape rule, the lowering and both
 * backends' kernels.
 */

import type { AutocastPolicy } from '../core/autocast.js';
import type { CommandWriter } from '../core/command.js';
import { toOneDevice } from '../core/device.js';
import { bool, ComputeType, type DType, getDefaultDtype } from '../core/dtype.js';
import { DeviceError, DtypeError, ShardwiseError } from '../core/errors.js';
import {
  defineOp,
  type Op,
  type OpDefinition,
  type OutputMeta,
  type PointwiseCost,
  type PointwiseSpec,
  type Sample,
  snakeCase,
  type Trait,
} from '../core/op.js';
import type { ParamSchema, ParamsOf } from '../core/op-params.js';
import { resultType } from '../core/promotion.js';
import {
  broadcastShapes,
  isContiguousLayout,
  isNonOverlappingAndDense,
  type Shape,
  sameShape,
} from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { collapseOperands } from './collapse.js';
import { pointwiseRule } from './sharding/pointwise.js';

/** The operands of a pointwise op, as a tuple. */
type Operands<Arity extends 1 | 2 | 3> = Arity extends 1
  ? readonly [Tensor]
  : Arity extends 2
    ? readonly [Tensor, Tensor]
    : readonly [Tensor, Tensor, Tensor];

interface PointwiseDefinition<S extends ParamSchema, Arity extends 1 | 2 | 3> {
  doc: string;
  expression: string;
  /** By default, the cost of the most expensive function in the expression. */
  cost?: PointwiseCost;
  classes?: PointwiseSpec['classes'];
  result?: PointwiseSpec['result'];
  condition?: boolean;
  linear?: PointwiseSpec['linear'];
  extreme?: PointwiseSpec['extreme'];
  /** Why operands of these dtypes or values have no result; null if they have one. */
  refuses?: (inputs: readonly Tensor[]) => string | null;
  /** The kernel gets all of them, as p0, p1 and so on in the expression. */
  params?: S;
  vjp: OpDefinition<S>['vjp'];
  saves?: OpDefinition['saves'];
  decompose?: (inputs: Operands<Arity>, params: ParamsOf<S>) => readonly Tensor[];
  autocast?: AutocastPolicy;
  /** Whether the public function can write its result into a tensor, as PyTorch's `out`. */
  out?: boolean;
  /** See {@link OpDefinition.traits}; besides `pointwise` and `out`. */
  traits?: readonly Trait[];
  samples: () => readonly Sample<ParamsOf<S>>[];
}

/** Adds a pointwise op to the table. @internal */
export function definePointwise<
  Arity extends 1 | 2 | 3,
  const S extends ParamSchema = Record<never, never>,
>(name: string, arity: Arity, definition: PointwiseDefinition<S, Arity>): Op<ParamsOf<S>> {
  const {
    expression,
    classes = 'F',
    result = 'SAME',
    condition = false,
    linear,
    extreme,
    cost = costOf(name, expression),
    refuses,
    decompose,
    out = false,
    traits = [],
    ...rest
  } = definition;
  const spec: PointwiseSpec = {
    arity,
    classes,
    result,
    condition,
    expression,
    cost,
    ...(linear && { linear }),
    ...(extreme && { extreme }),
  };
  const meta = (inputs: readonly Tensor[]): readonly OutputMeta[] => {
    const reason = refuses?.(inputs) ?? null;
    if (reason !== null)
      throw new DtypeError(`${name}: ${reason}`, {
        op: name,
        given: inputs.map((t) => t.dtype.name),
      });
    return [pointwiseMeta(name, spec, inputs)];
  };
  return defineOp({
    ...rest,
    name,
    outputs: ['y'],
    traits: ['pointwise', ...(out ? (['out'] as const) : []), ...traits],
    kernel: snakeCase(name),
    pointwise: spec,
    sharding: pointwiseRule<ParamsOf<S>>(name, spec, (inputs) => computeDtype(name, spec, inputs)),
    meta: refuses ? meta : (inputs) => [pointwiseMeta(name, spec, inputs)],
    lower: (command, inputs, [y]) => lowerPointwise(command, spec, inputs, y),
    // The call has as many inputs as the definition.
    ...(decompose && { decompose: decompose as never }),
  });
}

const COSTS: readonly PointwiseCost[] = ['memory', 'division', 'vector', 'libm'];

/** The functions of native/cpu/math*.h and native/cuda/math.cuh that expressions may call. */
const FUNCTIONS: Readonly<Record<PointwiseCost, string>> = {
  memory:
    'abs ceil floor round trunc sign sqrt maximum minimum lerp is_finite is_inf ' +
    'shift_left shift_right',
  division: 'trunc_divide',
  vector: 'exp exp2 expm1 log log1p tanh silu_backward gelu_tanh_backward',
  libm:
    'log2 log10 sin cos tan asin acos atan sinh cosh asinh acosh atanh erf erfc gelu_backward ' +
    'pow atan2 fmod remainder floor_divide',
};
const functionCosts: ReadonlyMap<string, PointwiseCost> = new Map(
  COSTS.flatMap((cost) => FUNCTIONS[cost].split(' ').map((name) => [name, cost] as const)),
);

/**
 * The cost of the most expensive function in the expression. @throws ShardwiseError for a function
 * without a cost
 */
function costOf(op: string, expression: string): PointwiseCost {
  let most: PointwiseCost = 'memory';
  for (const [, name = ''] of expression.matchAll(/m::(\w+)/g)) {
    const cost = functionCosts.get(name);
    if (cost === undefined)
      throw new ShardwiseError(
        'ERR_OP',
        `${op}: m::${name} has no cost; add it to FUNCTIONS in lib/ops/define-pointwise.ts`,
        { op },
      );
    if (COSTS.indexOf(cost) > COSTS.indexOf(most)) most = cost;
  }
  return most;
}

/** The dtype that the operands are converted to. */
function computeDtype(name: string, spec: PointwiseSpec, inputs: readonly Tensor[]): DType {
  const common = resultType(spec.condition ? inputs.slice(1) : inputs);
  if (spec.classes === 'F' && !common.isFloatingPoint) return getDefaultDtype();
  if (spec.classes === 'I' && common.isFloatingPoint) {
    throw new DtypeError(
      `${name}: expected integer or bool tensors, got ` +
        `${inputs.map((t) => t.dtype.name).join(' and ')}`,
      { op: name },
    );
  }
  return common;
}

function pointwiseMeta(name: string, spec: PointwiseSpec, inputs: readonly Tensor[]): OutputMeta {
  const first = inputs[0] as Tensor;
  let shape = first.sizes;
  let lead: Tensor | null = first.storage === null ? null : first;
  for (let i = 1; i < inputs.length; i++) {
    const t = inputs[i] as Tensor;
    if (t.sizes !== shape) shape = broadcastShapes(shape, t.sizes, name);
    if (t.storage === null) continue;
    if (lead === null || (lead.device !== t.device && lead.sizes.length === 0)) lead = t;
    else if (lead.device !== t.device && t.sizes.length > 0) throw mixedDevices(name, lead, t);
  }
  const dtype = spec.result === 'BOOL' ? bool : computeDtype(name, spec, inputs);
  const device = (lead ?? first).device;
  return { shape, strides: outputStrides(inputs, shape), dtype, device };
}

/**
 * The layout of the operands if all share a dense one (a transposed input gives a transposed
 * output), else row-major.
 */
function outputStrides(inputs: readonly Tensor[], shape: Shape): Shape | null {
  let strides: Shape | null = null;
  for (let i = 0; i < inputs.length; i++) {
    const t = inputs[i] as Tensor;
    if (t.storage === null || t.sizes.length === 0) continue;
    if (!sameShape(t.sizes, shape)) return null;
    if (strides === null) strides = t.strides;
    else if (strides !== t.strides && !sameShape(strides, t.strides)) return null;
  }
  if (strides === null || isContiguousLayout(shape, strides))
    return strides !== null && strides.length === shape.length ? packed(shape, strides) : null;
  return isNonOverlappingAndDense(shape, strides) ? strides : null;
}

/**
 * Row-major strides, shared with the operand when they are already canonical (size-1 dims may carry
 * any stride).
 */
function packed(shape: Shape, strides: Shape): Shape | null {
  let expected = 1;
  for (let i = shape.length - 1; i >= 0; i--) {
    if (strides[i] !== expected) return null;
    const size = shape[i] as number;
    if (size > 1) expected *= size;
  }
  return strides;
}

function mixedDevices(op: string, a: Tensor, b: Tensor): DeviceError {
  return new DeviceError(
    `${op}: expected tensors on one device, got ${a.dtype.name}[${a.sizes.join(', ')}] on ` +
      `${a.device} and ${b.dtype.name}[${b.sizes.join(', ')}] on ${b.device}. ` +
      `${toOneDevice(a.device, b.device)}`,
    { op, devices: [String(a.device), String(b.device)] },
  );
}

function lowerPointwise(
  command: CommandWriter,
  spec: PointwiseSpec,
  inputs: readonly Tensor[],
  output: Tensor,
): void {
  if (allFlat(inputs, output)) {
    const count = output.numel();
    for (let i = 0; i < inputs.length; i++) command.flat(inputs[i] as Tensor, count);
    command.flatOutput(output, count);
  } else {
    const { sizes, strides } = collapseOperands(inputs, output);
    for (let i = 0; i < inputs.length; i++)
      command.view(inputs[i] as Tensor, sizes, strides[i] as Shape);
    command.outputView(output, sizes, strides[inputs.length] as Shape);
  }
  command.param(computeTypeOf(spec, inputs, output));
}

/**
 * Whether all operands are dense in the same order, so that the kernel can treat them as vectors.
 */
function allFlat(inputs: readonly Tensor[], output: Tensor): boolean {
  for (let i = 0; i < inputs.length; i++) {
    const t = inputs[i] as Tensor;
    if (t.storage === null) continue;
    if (t.strides !== output.strides && !sameShape(t.strides, output.strides)) return false;
    if (t.sizes !== output.sizes && !sameShape(t.sizes, output.sizes)) return false;
  }
  return (
    isContiguousLayout(output.sizes, output.strides) ||
    isNonOverlappingAndDense(output.sizes, output.strides)
  );
}

/** The compute type of a call, which its kernel gets. @internal */
export function computeTypeOf(
  spec: PointwiseSpec,
  inputs: readonly Tensor[],
  output: Tensor,
): number {
  if (spec.result === 'SAME' && output.dtype.isFloatingPoint && allOfDtype(inputs, output.dtype))
    return output.dtype.computeType;
  const common = resultType(spec.condition ? inputs.slice(1) : inputs);
  if (spec.classes === 'F' && !common.isFloatingPoint)
    return spec.result === 'BOOL' ? ComputeType.Float : getDefaultDtype().computeType;
  return common.computeType;
}

function allOfDtype(inputs: readonly Tensor[], dtype: DType): boolean {
  for (let i = 0; i < inputs.length; i++) if ((inputs[i] as Tensor).dtype !== dtype) return false;
  return true;
}
