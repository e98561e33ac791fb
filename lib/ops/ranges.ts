/** Tensors of evenly spaced values: arange and linspace. */

import type { Device } from '../core/device.js';
import { dispatchOne } from '../core/dispatch.js';
import { type DType, getDefaultDtype, int64 } from '../core/dtype.js';
import { ArgumentError } from '../core/errors.js';
import { defineOp, type Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { checkNumber, optionsOf, unexpected } from '../core/options.js';
import { checkSizes } from '../core/shape.js';
import type { ShardingRule } from '../core/sharding-rule.js';
import { defineFunction } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { placed, type TensorOptions } from './factories.js';
import { requireDtype } from './operand.js';
import { finish } from './pinned.js';
import { arangeRule, linspaceRule } from './sharding/factories-and-random.js';

const rangeParams = (step: string) => ({
  size: param.value<number>(),
  start: param.kernel(),
  /** The step of arange, or the end of linspace. */
  step: param.kernel(step),
  dtype: param.value<DType>(),
  device: param.value<Device>(),
});
type RangeParams = ParamsOf<ReturnType<typeof rangeParams>>;

function rangeOp(
  name: string,
  kernel: string,
  step: string,
  doc: string,
  sharding: ShardingRule<RangeParams>,
): Op<RangeParams> {
  return defineOp({
    name,
    sharding,
    doc,
    kernel,
    inputs: [],
    outputs: ['y'],
    operands: '() -> (y: [n])',
    params: rangeParams(step),
    meta: (_inputs, { size, dtype, device }) => [{ shape: [size], strides: null, dtype, device }],
    vjp: 'not-differentiable',
    samples: () => [],
  });
}
const arangeOp = rangeOp(
  'arange',
  'arange',
  'step',
  'start, start + step, ... below end.',
  arangeRule<RangeParams>(),
);
const linspaceOp = rangeOp(
  'linspace',
  'linspace',
  'end',
  'Evenly spaced values, both ends included.',
  linspaceRule<RangeParams>(),
);

interface Arange {
  (end: number, options?: TensorOptions): Tensor;
  (start: number, end: number, options?: TensorOptions & { step?: number }): Tensor;
  (start: number, end: number, step: number, options?: TensorOptions): Tensor;
  (range: TensorOptions & { start?: number; end: number; step?: number }): Tensor;
}

/**
 * `start`, `start + step`, ... below `end` (above it for a negative step); with one argument, 0 to
 * `end`. Shapes: `[ceil((end - start) / step)]`. Dtypes: int64 if all arguments are integers, else
 * the default floating type, unless given; for integer dtypes start and step are truncated to
 * integers, for int64 the end, too. Gradient: none, it is a leaf.
 *
 * @throws ArgumentError for a step of 0 (also if truncated) or one that leads away from `end`; else
 * for bad options, see {@link TensorOptions}
 * @see PyTorch `torch.arange`
 * @example
 * arange(4); // [0, 1, 2, 3]
 * arange(1, 2, 0.25); // [1, 1.25, 1.5, 1.75]
 */
export const arange = defineFunction(
  'arange(start, end, step, *, dtype, device, requiresGrad, pinMemory)',
  (
    from: number | null = null,
    to: number | null = null,
    step = 1,
    options: TensorOptions = {},
  ): Tensor => {
    const [start, end] = (to === null ? [0, from] : [from ?? 0, to]) as [number, number];
    for (const [name, value] of Object.entries({ start, end, step }))
      if (typeof value !== 'number') throw unexpected('arange', name, 'a number', value);
    const device = placed(options, 'arange');
    const dtype =
      requireDtype(options.dtype, 'arange') ??
      ([start, end, step].every(Number.isInteger) ? int64 : getDefaultDtype());
    // Integer dtypes use the truncated start and step; int64 also counts by these, as in PyTorch.
    const [first, last, by] = dtype.isFloatingPoint
      ? [start, end, step]
      : [Math.trunc(start), Math.trunc(end), Math.trunc(step)];
    const size =
      // never -0
      Math.ceil(dtype === int64 && by !== 0 ? (last - first) / by : (end - start) / step) + 0;
    if (!Number.isSafeInteger(size) || step === 0 || (step > 0 ? last < first : last > first))
      throw new ArgumentError(`arange: cannot step from ${start} to ${end} by ${step}`, {
        op: 'arange',
        start,
        end,
        step,
      });
    if (by === 0)
      throw new ArgumentError(
        `arange: a step of ${step} is 0 in ${dtype.name}. Pass a floating point dtype, or ` +
          `convert the result with .to(${dtype.name}).`,
        {
          op: 'arange',
          step,
          dtype: dtype.name,
        },
      );
    return finish(
      dispatchOne(arangeOp, [], { size, start: first, step: by, dtype, device }),
      options,
    );
  },
) as unknown as Arange;

/**
 * `steps` evenly spaced values from `start` to `end`, both included; one step gives `start`.
 * Shapes: `[steps]`. Dtypes: the default floating type unless given; integer dtypes truncate.
 * Gradient: none, it is a leaf.
 *
 * @throws ArgumentError for a count that is not an integer or negative; else for bad options, see
 * {@link TensorOptions}
 * @see PyTorch `torch.linspace`
 */
export const linspace = defineFunction(
  'linspace(start, end, steps, *, dtype, device, requiresGrad, pinMemory)',
  (start: number, end: number, steps: number, options: TensorOptions = {}): Tensor => {
    checkSizes([steps], 'linspace');
    for (const [name, value] of Object.entries({ start, end }))
      checkNumber('linspace', name, value);
    const dtype =
      requireDtype(optionsOf('linspace', options).dtype, 'linspace') ?? getDefaultDtype();
    return finish(
      dispatchOne(linspaceOp, [], {
        size: steps,
        start,
        step: end,
        dtype,
        device: placed(options, 'linspace'),
      }),
      options,
    );
  },
);
