/**
 * The ops behind random tensors, and the numbering of draws. Numbers depend only on the seed, the
 * draw and the global index of the element, so they are the same on every device and mesh.
 */

import type { CommandWriter } from '../core/command.js';
import { type Device, device as deviceOf, getDefaultDevice } from '../core/device.js';
import { dispatchOne } from '../core/dispatch.js';
import { type DType, type DTypeLike, dtypeOf } from '../core/dtype.js';
import { DtypeError } from '../core/errors.js';
import { defineOp, type Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { optionsOf, unexpected } from '../core/options.js';
import { Generator, NO_DRAW, nextDraw } from '../core/random.js';
import { checkSizes, contiguousStrides, type Shape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { overwritten } from './copy.js';
import { TENSOR_OPTIONS, type TensorOptions } from './factories.js';
import { finish } from './pinned.js';
import { type ElementIndex, randomRule } from './sharding/factories-and-random.js';

const drawParams = {
  shape: param.value<Shape>(),
  dtype: param.value<DType>(),
  device: param.value<Device>(),
  seedLow: param.random(),
  seedHigh: param.random(),
  offset: param.random(),
  /** Row-major if not given. */
  strides: param.optional<Shape>(),
  /** The global indices of the elements, for a shard of a larger tensor. */
  index: param.optional<ElementIndex>(),
};
/** The parameters of the distribution, under the kernel's names. */
const drawOf = (first: string, second: string | null) => ({
  ...drawParams,
  first: param.kernel(first),
  second: second === null ? param.value<number>() : param.kernel(second),
});
type Draw = ParamsOf<ReturnType<typeof drawOf>>;

function defineRandom(
  name: string,
  kernel: string,
  doc: string,
  first: string,
  second: string | null = null,
): Op<Draw> {
  return defineOp({
    name,
    doc,
    inputs: [],
    outputs: ['y'],
    operands: '(positions: indexView [...s]) -> (y: [...s])',
    params: drawOf(first, second),
    traits: ['strided-output'],
    sharding: randomRule<Draw>(),
    kernel,
    meta: (_inputs, { shape, strides = null, dtype, device }) => [
      { shape, strides, dtype, device },
    ],
    lower: (command, _inputs, [y], { index }) => {
      writeIndex(command, y.sizes, index);
      command.output(y);
    },
    vjp: (_ctx, g) => [g.zerosLike()],
    samples: () => [],
  });
}

/** The index of each element, by which its number is drawn. @internal */
export function writeIndex(command: CommandWriter, shape: Shape, index?: ElementIndex): void {
  command.indexView(index?.start ?? 0, shape, index?.strides ?? contiguousStrides(shape));
}

const uniformOp = defineRandom(
  'randomUniform',
  'random_uniform',
  'Uniform numbers in [low, high).',
  'low',
  'high',
);
const normalOp = defineRandom('randomNormal', 'random_normal', 'Normal numbers.', 'mean', 'std');
const integerOp = defineRandom(
  'randomInteger',
  'random_integer',
  'Integers in [low, high).',
  'low',
  'high',
);
const bernoulliOp = defineRandom(
  'randomBernoulli',
  'random_bernoulli',
  'Ones with a probability, else zeros.',
  'probability',
);

/** @internal */
export { bernoulliOp, integerOp, normalOp, uniformOp };

/** Options of random factories. */
export interface RandomOptions extends TensorOptions {
  /** The source of the numbers; the default generator if not given. */
  generator?: Generator;
}

/** @internal */
export const RANDOM_OPTIONS = `${TENSOR_OPTIONS} generator`;

/** Draws into a new tensor, or into one that is there. @internal */
export function draw(
  op: Op<Draw>,
  shape: Shape,
  dtypeLike: DTypeLike,
  first: number,
  second: number,
  options: RandomOptions,
  name: string,
  into: Tensor | null = null,
  strides?: Shape,
): Tensor {
  checkSizes(shape, name);
  optionsOf(name, options, RANDOM_OPTIONS);
  if (options.generator !== undefined && !(options.generator instanceof Generator))
    throw unexpected(name, 'generator', 'a Generator', options.generator);
  const dtype = dtypeOf(dtypeLike, name);
  if (op !== integerOp && op !== bernoulliOp && !dtype.isFloatingPoint)
    throw new DtypeError(`${name}: expected a floating point dtype, got ${dtype.name}`, {
      op: name,
      dtype: dtype.name,
    });
  const device =
    into?.device ?? (options.device === undefined ? getDefaultDevice() : deviceOf(options.device));
  const t = dispatchOne(
    op,
    [],
    {
      shape: [...shape],
      dtype,
      device,
      first,
      second,
      ...(strides === undefined || into !== null ? {} : { strides }),
      ...(device.type === 'meta' ? NO_DRAW : nextDraw(options.generator, into)),
    },
    into === null ? null : overwritten(into),
  );
  return into === null || into.sharding !== null ? finish(t, options) : into;
}
