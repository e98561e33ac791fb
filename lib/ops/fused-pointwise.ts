/**
 * fusedPointwise: pointwise ops and conversions that one kernel computes, without results between
 * them in memory. It appears only in lowered graphs, where lib/compile/fusion puts it.
 *
 * The kernel gets the program as parameters, in the order that native/include/fused_program.h
 * reads.
 */
import type { CommandWriter } from '../core/command.js';
import type { DType } from '../core/dtype.js';
import { defineOp, type Op, type OutputMeta } from '../core/op.js';
import { param } from '../core/op-params.js';
import { numelOf, type Shape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { collapseOperands } from './collapse.js';

/** The most inputs and outputs of a call, steps, and parameters of a step. @internal */
export const fusedLimits = { operands: 24, steps: 64, params: 5 } as const;

/**
 * An operand of a step: the number of a value (the inputs, then the steps), or a number.
 *
 * @internal
 */
export type FusedOperand = { readonly value: number } | { readonly number: number };

/** One op of a program. @internal */
export interface FusedStep {
  /** The name of the op, for readers. */
  readonly name: string;
  /** The number of its kernel, or -1: a conversion, whose result is its operand. */
  readonly kernel: number;
  /** The `ComputeType` that the operands are converted to. */
  readonly computeType: number;
  /** The dtype that the result is rounded to. */
  readonly dtype: DType;
  readonly operands: readonly FusedOperand[];
  readonly params: readonly number[];
}

/** An output: what it stores, and its layout. @internal */
export interface FusedOutput {
  /** The number of a value, or those of values that it joins along `dim`, all of one size. */
  readonly value: number | readonly number[];
  readonly dim?: number;
  readonly shape: Shape;
  readonly strides: Shape;
  readonly dtype: DType;
}

/** What a call of fusedPointwise computes. @internal */
export interface FusedProgram {
  readonly steps: readonly FusedStep[];
  readonly outputs: readonly FusedOutput[];
}

const fusedParams = { program: param.value<FusedProgram>() };

/** @internal */
export const fusedPointwiseOp: Op<{ program: FusedProgram }> = defineOp({
  name: 'fusedPointwise',
  doc: 'Pointwise ops and conversions of broadcast inputs, computed element by element at once.',
  operands: 'any',
  params: fusedParams,
  traits: ['overwrites', 'windowed-output'],
  meta: (inputs, { program }) => program.outputs.map((output) => outputMeta(output, inputs)),
  lower: (command, inputs, outputs, { program }) => {
    const stores = storesOf(outputs, program);
    writeOperands(command, inputs, stores);
    writeProgram(command, program, stores);
    // As each of the calls that it stands for: what runs at once by itself does so here.
    command.cost(numelOf((stores[0] as Store).window.sizes));
  },
  vjp: 'not-differentiable',
  samples: () => [],
});

/**
 * A program as text: inputs are i0, i1 and so on, steps t0, t1 and so on; a conversion has the name
 * of its dtype; what is behind a semicolon are parameters of the op other than a factor of 1.
 *
 * @internal
 */
export function programText({ steps, outputs }: FusedProgram, inputs: number): string {
  const named = (value: number): string => (value < inputs ? `i${value}` : `t${value - inputs}`);
  const lines = steps.map(({ name, operands, params }, i) => {
    const args = operands.map((each) => ('value' in each ? named(each.value) : each.number));
    const more = params.every((p) => p === 1) ? '' : `; ${params.join(', ')}`;
    return `t${i} = ${name}(${args.join(', ')}${more})`;
  });
  const last = inputs + steps.length - 1;
  const isLast = outputs.length === 1 && outputs[0]?.value === last;
  const stored = outputs.map(({ value }) =>
    typeof value === 'number' ? named(value) : `cat(${value.map(named).join(', ')})`,
  );
  return `${lines.join('; ')}${isLast ? '' : ` -> ${stored.join(', ')}`}`;
}

function outputMeta({ shape, strides, dtype }: FusedOutput, inputs: readonly Tensor[]): OutputMeta {
  const { device } = inputs[0] as Tensor;
  return { shape, strides, dtype, device };
}

/** A value in the place of an output, or in a window of it, that the kernel writes. */
interface Store {
  readonly output: Tensor;
  readonly window: Pick<Tensor, 'sizes' | 'strides' | 'storage'>;
  readonly offset: number;
  readonly value: number;
}

function storesOf(outputs: readonly Tensor[], program: FusedProgram): Store[] {
  return program.outputs.flatMap(({ value, dim = 0 }, i): Store | Store[] => {
    const output = outputs[i] as Tensor;
    if (typeof value === 'number') return { output, window: output, offset: 0, value };
    const { sizes, strides, storage } = output;
    const size = (sizes[dim] as number) / value.length;
    const window = { sizes: sizes.with(dim, size), strides, storage };
    const step = size * (strides[dim] as number);
    return value.map((each, k) => ({ output, window, offset: k * step, value: each }));
  });
}

/** All operands as views of the shape of the stores, of as few dims as all of them allow. */
function writeOperands(
  command: CommandWriter,
  inputs: readonly Tensor[],
  stores: readonly Store[],
): void {
  const [first, ...others] = stores.map(({ window }) => window) as [Store['window']];
  const { sizes, strides } = collapseOperands([...inputs, ...others], first);
  const layouts = [
    ...strides.slice(0, inputs.length),
    strides.at(-1),
    ...strides.slice(inputs.length),
  ];
  inputs.forEach((t, i) => command.view(t, sizes, layouts[i] as Shape));
  stores.forEach(({ output, offset }, i) =>
    command.outputView(output, sizes, layouts[inputs.length + i] as Shape, offset),
  );
}

function writeProgram(
  command: CommandWriter,
  { steps }: FusedProgram,
  stores: readonly Store[],
): void {
  const write = (...numbers: number[]): void => {
    for (const number of numbers) command.param(number);
  };
  write(steps.length);
  for (const { kernel, computeType, dtype, operands, params } of steps) {
    write(kernel, computeType, dtype.code, operands.length);
    for (const operand of operands)
      if ('value' in operand) write(0, operand.value);
      else write(1, operand.number);
    write(params.length, ...params);
  }
  write(...stores.map(({ value }) => value));
}
