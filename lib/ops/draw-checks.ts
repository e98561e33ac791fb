/**
 * Checks of values by which elements are drawn. The kernel makes them, so that no call waits for
 * values; each op returns a copy, so that what draws by it comes after the check.
 */
import { namedAs } from '../core/caller-name.js';
import { dispatchOne } from '../core/dispatch.js';
import { float32, float64, int64 } from '../core/dtype.js';
import { defineOp, type Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import type { Tensor } from '../core/tensor.js';
import { NO_PARAMS } from './method.js';
import { sampleTensor } from './samples.js';
import { sameDimStrategies } from './sharding/along-dim.js';

/** In lower precision, probabilities would be multiples of 1/256. */
const widened = ([x]: readonly Tensor[]) => {
  const { sizes: shape, dtype, device } = x as Tensor;
  return [{ shape, strides: null, dtype: dtype === float64 ? float64 : float32, device }];
};

const probabilitiesOp: Op<object> = defineOp({
  name: 'bernoulliProbabilities',
  doc: 'The input, if its elements are from 0 to 1; else reading the result throws.',
  inputs: ['x'],
  outputs: ['y'],
  operands: '(x: dense float T[...s]) -> (y: dense acc(T) [...s])',
  params: {},
  sharding: { strategies: ([x]) => sameDimStrategies((x as Tensor).ndim, [], 1, 1) },
  meta: widened,
  vjp: 'not-differentiable',
  calledBy: 'bernoulli',
  publicCall: ([x]) => checkedProbabilities(x),
  samples: () =>
    [[5], [3, 4], [], [0, 3]].map((shape) => ({
      inputs: [sampleTensor(shape, { low: 0, high: 1 })] as [Tensor],
      params: NO_PARAMS,
    })),
});

const weightsParams = {
  /** The number of weights above 0 that each row needs. */
  least: param.value<number>(),
};
type Weights = ParamsOf<typeof weightsParams>;

const weightsOp: Op<Weights> = defineOp({
  name: 'multinomialWeights',
  doc:
    'The input, if its elements are finite and 0 or more, and enough of each row above 0; ' +
    'else reading the result throws.',
  inputs: ['x'],
  outputs: ['y'],
  operands: '(x: dense float T[...s, n], least?: []) -> (y: dense acc(T) [...s, n])',
  params: weightsParams,
  sharding: {
    strategies: ([x]) => sameDimStrategies((x as Tensor).ndim, [(x as Tensor).ndim - 1], 1, 1),
  },
  meta: widened,
  lower: (command, [x], [y], { least }) => {
    command.tensor(x);
    command.immediate(least, int64);
    command.output(y);
  },
  vjp: 'not-differentiable',
  calledBy: 'multinomial',
  publicCall: ([x], { least }) => checkedWeights(x, least),
  samples: () =>
    [[5], [3, 4], [2, 1, 7], [0, 3]].map((shape) => ({
      inputs: [sampleTensor(shape, { low: 0.1, high: 2 })] as [Tensor],
      params: { least: 2 },
    })),
});

const floating = (t: Tensor): Tensor => (t.dtype.isFloatingPoint ? t : t.float()).contiguous();

function checked<P extends object>(op: Op<P>, input: Tensor, params: P): Tensor {
  try {
    return dispatchOne(op, [floating(input)], params);
  } catch (error) {
    throw namedAs(error, op.name, op.calledBy ?? op.name);
  }
}

/** A copy in float32 or float64, which cannot be read unless all are from 0 to 1. @internal */
export function checkedProbabilities(input: Tensor): Tensor {
  return checked(probabilitiesOp, input, NO_PARAMS);
}

/**
 * A copy in float32 or float64, which cannot be read unless all are finite and 0 or more, and
 * `least` of each row above 0. @internal
 */
export function checkedWeights(input: Tensor, least: number): Tensor {
  return checked(weightsOp, input, { least });
}
