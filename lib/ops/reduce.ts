/**
 * Reductions over dims: sum, mean, amax, amin, any, all, logsumexp; prod.ts adds products. Names
 * and semantics are PyTorch's.
 *
 * Shapes: the input's without the dims, or with size 1 there (`keepdim`). Every function throws
 * ArgumentError for a wrong tensor, dim or option, and IndexError for a dim that is out of range or
 * given twice.
 */

import type { AutocastPolicy } from '../core/autocast.js';
import type { CommandWriter } from '../core/command.js';
import { reduced } from '../core/decompose.js';
import { dispatchOne } from '../core/dispatch.js';
import { bool, type DType, type DTypeLike, getDefaultDtype, int64, uint8 } from '../core/dtype.js';
import { IndexError } from '../core/errors.js';
import { defineOp, type Op, type OpDefinition, type Sample } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { checkFlag } from '../core/options.js';
import { formatShape, numelOf, type Shape, wrapDims } from '../core/shape.js';
import type { ShardingRule } from '../core/sharding-rule.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { addMethod } from './method.js';
import { type DtypeOption, requireDtype, requireFloating, requireTensor } from './operand.js';
import { reshapeIfNeeded } from './reshape-if-needed.js';
import { sampleTensor } from './samples.js';
import { extremeRule, keptDimsRule, logicRule, meanRule, sumRule } from './sharding/reductions.js';

/** Params of every reduction: dims are wrapped and sorted; the kernel gets their number. */
export const reductionParams = {
  reducedNdim: param.byLower(),
  dims: param.value<readonly number[]>(),
  keepdim: param.value<boolean>(),
};
export type Reduction = ParamsOf<typeof reductionParams>;

/** Dims to reduce, negative ones from the end: one, several, or all (null or an empty list). */
export type Dims = number | readonly number[] | null;

/** @internal */
export function reducedShape(shape: Shape, dims: readonly number[], keepdim: boolean): number[] {
  if (!keepdim && dims.length === shape.length) return [];
  if (keepdim) return shape.map((s, i) => (dims.includes(i) ? 1 : s));
  return shape.filter((_, i) => !dims.includes(i));
}

/** Writes the input with reduced dims last, merged where strides allow. @internal */
export function lowerReduction(
  command: CommandWriter,
  input: Tensor,
  outputs: readonly Tensor[],
  dims: readonly number[],
): void {
  const { sizes, strides, reducedNdim } = splitDims(input, dims);
  command.view(input, sizes, strides);
  for (const output of outputs) command.flatOutput(output, output.numel());
  command.param(reducedNdim);
}

/** Kept dims, then reduced ones, each group merged where strides allow. */
function splitDims(
  input: Tensor,
  dims: readonly number[],
): { sizes: number[]; strides: number[]; reducedNdim: number } {
  const sizes: number[] = [];
  const strides: number[] = [];
  appendMerged(input, dims, false, sizes, strides);
  const kept = sizes.length;
  appendMerged(input, dims, true, sizes, strides);
  return { sizes, strides, reducedNdim: sizes.length - kept };
}

function appendMerged(
  input: Tensor,
  dims: readonly number[],
  reduced: boolean,
  sizes: number[],
  strides: number[],
): void {
  const first = sizes.length;
  for (let dim = 0; dim < input.sizes.length; dim++) {
    const size = input.sizes[dim] as number;
    if (size === 1 || dims.includes(dim) !== reduced) continue;
    const stride = input.strides[dim] as number;
    const last = sizes.length - 1;
    if (last >= first && strides[last] === stride * size) {
      sizes[last] = (sizes[last] as number) * size;
      strides[last] = stride;
    } else {
      sizes.push(size);
      strides.push(stride);
    }
  }
}

export const reductionSamples = <P extends Reduction>(
  extra: Omit<P, keyof Reduction>,
  range: Parameters<typeof sampleTensor>[1] = {},
): (() => Sample<P, readonly [Tensor]>[]) => {
  const cases: [Shape, number[], boolean][] = [
    [[3, 4], [0, 1], false],
    [[3, 4], [1], true],
    [[2, 3, 5], [0, 2], false],
    [[7], [0], false],
  ];
  return () =>
    cases.map(([shape, dims, keepdim]) => ({
      inputs: [sampleTensor(shape, range)],
      params: { dims, keepdim, ...extra } as unknown as P,
    }));
};

type Rule = OpDefinition<typeof reductionParams>['vjp'];
type Decomposition = (inputs: readonly [Tensor], params: Reduction) => readonly Tensor[];

/** @internal */
export function defineReduction(
  name: string,
  kernel: string,
  doc: string,
  dtypeOf: (t: DType) => DType,
  sharding: ShardingRule<Reduction>,
  vjp: Rule,
  saves: OpDefinition['saves'] = {},
  autocast?: AutocastPolicy,
  decompose?: Decomposition,
  classes: 'float ' | '' = '',
): Op<Reduction> {
  return defineOp({
    name,
    doc,
    kernel,
    inputs: ['x'],
    outputs: ['y'],
    operands: `(x: ${classes}[...]) -> (y: [...]) where reducesTo(x, y, reducedNdim)`,
    params: reductionParams,
    meta: ([{ sizes: shape, dtype, device }], { dims, keepdim }) => [
      { shape: reducedShape(shape, dims, keepdim), strides: null, dtype: dtypeOf(dtype), device },
    ],
    lower: (command, [x], outputs, { dims }) => lowerReduction(command, x, outputs, dims),
    sharding,
    vjp,
    saves,
    ...(autocast && { autocast }),
    ...(decompose && { decompose }),
    samples: reductionSamples<Reduction>({}),
  });
}

const same = (t: DType): DType => t;
/** @internal */
export const widened = (t: DType): DType => (t.isFloatingPoint ? t : int64);
/** uint8 keeps its dtype, as in PyTorch, where it once was the dtype of masks. */
const toBool = (t: DType): DType => (t === uint8 ? uint8 : bool);
const savesBoth = { inputs: [0], outputs: [0] } as const;

/** A reduced value stretched back over the dims it was reduced from. @internal */
export function restore(reduced: Tensor, shape: Shape, { dims, keepdim }: Reduction): Tensor {
  if (reduced.sizes.length === 0) return reduced.expand(shape);
  const withDims = keepdim ? reduced : reshapeIfNeeded(reduced, reducedShape(shape, dims, true));
  return withDims.expand(shape);
}

const sumOp = defineReduction(
  'sum',
  'reduce_sum',
  'Sum over dims; integers and bools sum to int64.',
  widened,
  sumRule<Reduction>(widened),
  (ctx, g) => [restore(g, ctx.inputShape(0), ctx.params)],
  {},
  'float32 on cuda',
);

const meanOp = defineReduction(
  'mean',
  'reduce_mean',
  'Mean over dims.',
  same,
  meanRule,
  (ctx, g) => {
    const shape = ctx.inputShape(0);
    const count = ctx.params.dims.reduce((n, d) => n * (shape[d] as number), 1);
    return [restore(g.div(count), shape, ctx.params)];
  },
);

/** All elements that equal the extremum share the gradient in equal parts. */
const extremumRule: Rule = (ctx, g) => {
  const x = reduced(ctx.input(0));
  const extremum = reduced(ctx.output(0));
  const whole = (t: Tensor): Tensor => restore(t, x.sizes, ctx.params);
  // a NaN is the extremum
  const areNan = x.isnan().logicalAnd(whole(extremum.isnan()));
  const hits = x.eq(whole(extremum)).logicalOr(areNan).to(g.dtype);
  const share = hits.div(hits.sum(ctx.params.dims, { keepdim: true }));
  return [restore(g, x.sizes, ctx.params).mul(share)];
};
const amaxOp = defineReduction(
  'amax',
  'reduce_amax',
  'Largest element over dims; NaN wins.',
  same,
  extremeRule('amax'),
  extremumRule,
  savesBoth,
);
const aminOp = defineReduction(
  'amin',
  'reduce_amin',
  'Smallest element over dims; NaN wins.',
  same,
  extremeRule('amin'),
  extremumRule,
  savesBoth,
);
const anyOp = defineReduction(
  'any',
  'reduce_any',
  'Whether some element is not 0.',
  toBool,
  logicRule('max'),
  'not-differentiable',
);
const allOp = defineReduction(
  'all',
  'reduce_all',
  'Whether no element is 0.',
  toBool,
  logicRule('min'),
  'not-differentiable',
);
const logsumexpOp = defineReduction(
  'logsumexp',
  'reduce_logsumexp',
  'log of the sum of exponentials, without overflow.',
  same,
  keptDimsRule<Reduction>(1, true),
  (ctx, g) => {
    const x = ctx.input(0);
    return [
      restore(g, x.sizes, ctx.params).mul(x.sub(restore(ctx.output(0), x.sizes, ctx.params)).exp()),
    ];
  },
  savesBoth,
  'float32 on cuda',
  ([x], params) => [logsumexpByParts(x, params)],
  'float ',
);

/** Subtracts the largest element first, unless it is infinite, which would give NaN. */
function logsumexpByParts(x: Tensor, { dims, keepdim }: Reduction): Tensor {
  if (dims.some((d) => x.sizes[d] === 0)) return x.sum(dims, { keepdim }).log();
  const largest = reduced(x.amax(dims, { keepdim: true }));
  const shift = largest.maskedFill(largest.isinf(), 0);
  const logs = x.sub(shift).exp().sum(dims, { keepdim: true }).log().add(shift);
  return keepdim ? logs : logs.squeeze(dims);
}

/** @throws IndexError for an extremum over no elements. */
function checkNotEmpty(input: Tensor, dims: readonly number[], op: string): void {
  if (dims.some((d) => input.sizes[d] === 0) && numelOf(reducedShape(input.sizes, dims, false)) > 0)
    throw new IndexError(
      `${op}: cannot reduce dims [${dims.join(', ')}] of shape ${formatShape(input.sizes)}: ` +
        'they hold no elements',
      { op, shape: input.sizes, dims },
    );
}

/** Options of reductions. */
export interface ReduceOptions extends DtypeOption {
  /** Keep reduced dims with size 1; they are dropped by default. */
  keepdim?: boolean;
}

type Check = (input: Tensor, dims: readonly number[], op: string) => void;
type Convert = (input: Tensor) => Tensor;

/** @internal */
export function reduce(
  op: Op<Reduction>,
  check: Check | null,
  converted: Convert | null,
  input: Tensor,
  dim: Dims,
  keepdim: boolean,
  wanted: DTypeLike | undefined,
): Tensor {
  requireTensor(input, op.name);
  checkFlag(op.name, 'keepdim', keepdim);
  const dtype = requireDtype(wanted, op.name);
  const asked = dtype === undefined ? input : input.to(dtype);
  const given = converted === null ? asked : converted(asked);
  const dims = wrapDims(dim, input.sizes.length, op.name);
  check?.(given, dims, op.name);
  const result = dispatchOne(op, [given], { dims, keepdim });
  // integers are summed in int64
  return dtype !== undefined && result.dtype === int64 ? result.to(dtype) : result;
}

function reduction(
  op: Op<Reduction>,
  check: Check | null = null,
  converted: Convert | null = null,
) {
  const fn = defineFunction(
    `${op.name}(input, /, dim, keepdim, *, dtype)`,
    (input: Tensor, dim: Dims = null, keepdim = false, options: DtypeOption = {}): Tensor =>
      reduce(op, check, converted, input, dim, keepdim, options.dtype),
  );
  addMethod(op.name, methodOf(fn));
  return fn;
}

/**
 * Sum over dims; 0 of nothing. Dtypes: floating stay, integers and bools sum to int64. Gradient:
 * yes. @see PyTorch `torch.sum`
 */
export const sum = reduction(sumOp);
/**
 * Mean over dims; NaN over no elements. Floating dtypes, kept. Gradient: yes. @throws DtypeError
 * for others, without `dtype` @see PyTorch `torch.mean`
 */
export const mean = reduction(meanOp, (input, _dims, op) => requireFloating(input, op));
/**
 * Largest element over dims; NaN wins. Any dtype, kept. Gradient: shared by ties. @throws
 * IndexError over nothing @see PyTorch `torch.amax`
 */
export const amax = reduction(amaxOp, checkNotEmpty);
/**
 * Smallest element over dims; NaN wins. Any dtype, kept. Gradient: shared by ties. @throws
 * IndexError over nothing @see PyTorch `torch.amin`
 */
export const amin = reduction(aminOp, checkNotEmpty);
/**
 * Whether some element is not 0; false over no elements. Any dtype; the result is bool, or uint8
 * for uint8. Gradient: none.
 * @see PyTorch `torch.any`
 */
export const any = reduction(anyOp);
/**
 * Whether no element is 0; true over no elements. Any dtype; the result is bool, or uint8 for
 * uint8. Gradient: none. @see PyTorch `torch.all`
 */
export const all = reduction(allOp);
/**
 * log of the sum of exponentials, without overflow. Floating dtypes stay, others give the default
 * one. Gradient: yes. @see PyTorch `torch.logsumexp`
 */
export const logsumexp = reduction(logsumexpOp, null, (input) =>
  input.dtype.isFloatingPoint ? input : input.to(getDefaultDtype()),
);

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * Sum over dims (all by default); integers and bools sum to int64; the same as {@link sum}.
     *
     * @example
     * tensor([[1, 2], [3, 4]]).sum(); // 10
     * tensor([[1, 2], [3, 4]]).sum(0); // [4, 6]
     * tensor([[1, 2], [3, 4]]).sum(1, true); // [[3], [7]]
     */
    sum: MethodOf<typeof sum>;
    /**
     * Mean over dims; the same as {@link mean}.
     *
     * @example
     * tensor([[1, 2], [3, 4]]).mean(); // 2.5
     * tensor([[1, 2], [3, 4]]).mean(0); // [2, 3]
     */
    mean: MethodOf<typeof mean>;
    /**
     * Largest element over dims; the same as {@link amax}.
     *
     * @example
     * tensor([[1, 2], [4, 3]]).amax(1); // [2, 4]
     */
    amax: MethodOf<typeof amax>;
    /** Smallest element over dims; the same as {@link amin}. */ amin: MethodOf<typeof amin>;
    /** Whether some element is not 0; the same as {@link any}. */ any: MethodOf<typeof any>;
    /** Whether no element is 0; the same as {@link all}. */ all: MethodOf<typeof all>;
    /** log of the sum of exponentials; the same as {@link logsumexp}. */ logsumexp: MethodOf<
      typeof logsumexp
    >;
  }
}
