/**
 * Sets every element of a tensor to one value: fill_, zero_. A 64-bit integer travels to the kernel
 * as two words, because a command holds doubles.
 */

import { dispatchOne } from '../core/dispatch.js';
import { bool, type DType } from '../core/dtype.js';
import { ArgumentError, ShapeError } from '../core/errors.js';
import { defineOp, type Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { formatShape } from '../core/shape.js';
import { Tensor } from '../core/tensor.js';
import { toInteger } from '../core/values.js';
import { collapseOperands } from './collapse.js';
import { addInPlaceMethod, addMethod } from './method.js';
import { describe } from './operand.js';
import { sampleTensor } from './samples.js';
import { fillRule } from './sharding/pointwise.js';

/** A value in two doubles, because 64-bit integers do not fit one. */
export const wordsOfValue = { valueHigh: param.byLower(), valueLow: param.byLower() };

const fillParams = { ...wordsOfValue, value: param.value<number | bigint>() };
type FillParams = ParamsOf<typeof fillParams>;

/** Splits an integer so that both halves are exact doubles; see `fill` in native/README.md. */
export function fillWords(value: number | bigint, dtype: DType, op: string): [number, number] {
  if (dtype === bool) return [0, Number(Number(value) !== 0)];
  if (dtype.isFloatingPoint) return [Number(value), 0];
  if (value === 0) return [0, 0];
  const whole = toInteger(value, dtype, op);
  return [Number(whole >> 32n), Number(BigInt.asUintN(32, whole))];
}

/** @throws ArgumentError for a value that is not a number, bigint or boolean */
export function fillValue(value: unknown, op: string): number | bigint {
  if (typeof value === 'number' || typeof value === 'bigint') return value;
  if (typeof value === 'boolean') return Number(value);
  throw new ArgumentError(`${op}: expected a number, got ${describe(value)}`, {
    op,
    given: describe(value),
  });
}

/** Overwrites its input: meta is the input itself, so it only runs in place. */
const fillOp: Op<FillParams> = defineOp({
  name: 'fill',
  inputs: ['x'],
  outputs: ['y'],
  operands: '() -> (y: [...])',
  params: fillParams,
  doc: 'Every element set to one value.',
  traits: ['pointwise', 'strided-output', 'overwrites'],
  sharding: fillRule<FillParams>(),
  meta: ([{ sizes: shape, dtype, device }]) => [{ shape, strides: null, dtype, device }],
  lower: (command, _inputs, [y], { value }) => {
    const { sizes, strides } = collapseOperands([], y);
    command.outputView(y, sizes, strides[0] as number[]);
    const [high, low] = fillWords(value, y.dtype, 'fill_');
    command.param(high);
    command.param(low);
  },
  vjp: (_ctx, g) => [g.zerosLike()],
  samples: () => [{ inputs: [sampleTensor([3, 4])], params: { value: 2.5 } }],
});

addMethod('fill_', function (value: number | bigint | boolean | Tensor) {
  if (value instanceof Tensor) {
    if (value.sizes.length > 0)
      throw new ShapeError(
        'fill_: expected a number or a tensor without dims, got shape ' +
          `${formatShape(value.sizes)}. Use copy_.`,
        { op: 'fill_', shape: value.sizes },
      );
    return this.copy_(value);
  }
  return dispatchOne(fillOp, [this], { value: fillValue(value, 'fill_') }, this);
});
addInPlaceMethod('zero_', function () {
  return dispatchOne(fillOp, [this], { value: 0 }, this);
});

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * Sets every element to one value; a tensor is broadcast and copied. Gradient: a tensor as
     * value; 0 for the overwritten values.
     *
     * @throws ArgumentError for a number that an integer dtype cannot hold, and for any other
     * value; InPlaceError as {@link Tensor.copy_}
     * @see PyTorch `torch.Tensor.fill_`
     * @example
     * const t = zeros([2]);
     * t.fill_(5);
     * t; // [5, 5]
     */
    fill_(value: number | bigint | boolean | Tensor): this;
    /**
     * Sets every element to 0. Gradient: 0 for the overwritten values. @throws InPlaceError as
     * {@link Tensor.copy_} @see PyTorch `torch.Tensor.zero_`
     */
    zero_(): this;
  }
}
