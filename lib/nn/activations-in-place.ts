/** Activation functions as modules that can overwrite their input instead of allocating. */
import { checkFlag, checkNumber, unexpected } from '../core/options.js';
import { type ArgumentsOf, defineArguments } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { overwrite } from '../ops/composite.js';
import { requireTensor } from '../ops/operand.js';
import { hardtanh, threshold } from '../ops/piecewise-activations.js';
import { celu } from '../ops/smooth-activations.js';
import { Module } from './module.js';

/** An activation with an in-place form: `inplace` overwrites the input. */
abstract class InPlaceActivation extends Module {
  readonly inplace: boolean;

  constructor(name: string, inplace: boolean) {
    super();
    checkFlag(name, 'inplace', inplace);
    this.inplace = inplace;
  }

  override extraRepr(): string {
    return this.inplace ? 'inplace=true' : '';
  }
}

const joined = (...facts: readonly string[]): string => facts.filter((f) => f !== '').join(', ');

type TensorFunction = (input: Tensor) => Tensor;
const inPlaceArguments = (name: string) =>
  defineArguments(`${name}(inplace)`, (inplace = false) => ({ inplace }));
type InPlaceArguments = ArgumentsOf<ReturnType<typeof inPlaceArguments>>;

interface InPlaceOnly extends InPlaceActivation {
  forward(input: Tensor): Tensor;
}

/** The base class of an activation whose only option is `inplace`. */
function inPlaceOnly(
  name: string,
  activation: TensorFunction,
  inPlaceActivation: TensorFunction,
): new (
  ...args: InPlaceArguments
) => InPlaceOnly {
  const argumentsOf = inPlaceArguments(name);
  return class extends InPlaceActivation {
    constructor(...args: InPlaceArguments) {
      super(name, argumentsOf(...args).inplace);
    }

    forward(input: Tensor): Tensor {
      requireTensor(input, name);
      return this.inplace ? inPlaceActivation(input) : activation(input);
    }
  };
}

/**
 * max(x, 0).
 *
 * @example
 * new nn.ReLU()(tensor([-1, 2])); // [0, 2]
 */
export class ReLU extends inPlaceOnly(
  'ReLU',
  (x) => x.relu(),
  (x) => x.relu_(),
) {}

/** min(max(x, 0), 6). */
export class ReLU6 extends inPlaceOnly(
  'ReLU6',
  (x) => x.relu6(),
  (x) => x.relu6_(),
) {}

const leakyReluArguments = defineArguments(
  'LeakyReLU(negativeSlope, inplace)',
  (negativeSlope = 0.01, inplace = false) => ({ negativeSlope, inplace }),
);

/** x above 0, negativeSlope * x below. */
export class LeakyReLU extends InPlaceActivation {
  /** The slope for negative inputs. */
  readonly negativeSlope: number;

  constructor(...args: ArgumentsOf<typeof leakyReluArguments>) {
    const { negativeSlope, inplace } = leakyReluArguments(...args);
    super('LeakyReLU', inplace);
    checkNumber('LeakyReLU', 'negativeSlope', negativeSlope);
    this.negativeSlope = negativeSlope;
  }

  forward(input: Tensor): Tensor {
    requireTensor(input, 'LeakyReLU');
    const { negativeSlope } = this;
    return this.inplace ? input.leakyRelu_({ negativeSlope }) : input.leakyRelu({ negativeSlope });
  }

  override extraRepr(): string {
    return joined(`negativeSlope=${this.negativeSlope}`, super.extraRepr());
  }
}

const eluArguments = defineArguments('ELU(alpha, inplace)', (alpha = 1, inplace = false) => ({
  alpha,
  inplace,
}));

/** x above 0, alpha (exp(x) - 1) below. */
export class ELU extends InPlaceActivation {
  /** The scale of negative outputs. */
  readonly alpha: number;

  constructor(...args: ArgumentsOf<typeof eluArguments>) {
    const { alpha, inplace } = eluArguments(...args);
    super('ELU', inplace);
    checkNumber('ELU', 'alpha', alpha);
    this.alpha = alpha;
  }

  forward(input: Tensor): Tensor {
    requireTensor(input, 'ELU');
    const { alpha } = this;
    return this.inplace ? input.elu_({ alpha }) : input.elu({ alpha });
  }

  override extraRepr(): string {
    return joined(`alpha=${this.alpha}`, super.extraRepr());
  }
}

const celuArguments = defineArguments('CELU(alpha, inplace)', (alpha = 1, inplace = false) => ({
  alpha,
  inplace,
}));

/** x above 0, alpha (exp(x / alpha) - 1) below. */
export class CELU extends InPlaceActivation {
  /** The scale of negative outputs. */
  readonly alpha: number;

  constructor(...args: ArgumentsOf<typeof celuArguments>) {
    const { alpha, inplace } = celuArguments(...args);
    super('CELU', inplace);
    checkNumber('CELU', 'alpha', alpha);
    if (alpha === 0) throw unexpected('CELU', 'alpha', 'other than 0', alpha);
    this.alpha = alpha;
  }

  forward(input: Tensor): Tensor {
    requireTensor(input, 'CELU');
    const { alpha } = this;
    return this.inplace ? input.celu_({ alpha }) : celu(input, { alpha });
  }

  override extraRepr(): string {
    return joined(`alpha=${this.alpha}`, super.extraRepr());
  }
}

/** The scaled ELU, which keeps mean 0 and variance 1. */
export class SELU extends inPlaceOnly(
  'SELU',
  (x) => x.selu(),
  (x) => x.selu_(),
) {}

/** x * sigmoid(x). */
export class SiLU extends inPlaceOnly(
  'SiLU',
  (x) => x.silu(),
  (x) => x.silu_(),
) {}

/** x tanh(softplus(x)). */
export class Mish extends inPlaceOnly(
  'Mish',
  (x) => x.mish(),
  (x) => x.mish_(),
) {}

/** relu6(x + 3) / 6. */
export class Hardsigmoid extends inPlaceOnly(
  'Hardsigmoid',
  (x) => x.hardsigmoid(),
  (x) => x.hardsigmoid_(),
) {}

/** x relu6(x + 3) / 6. */
export class Hardswish extends inPlaceOnly(
  'Hardswish',
  (x) => x.hardswish(),
  (x) => x.hardswish_(),
) {}

const hardtanhArguments = defineArguments(
  'Hardtanh(minVal, maxVal, inplace)',
  (minVal = -1, maxVal = 1, inplace = false) => ({ minVal, maxVal, inplace }),
);

/** Clamps each element to [minVal, maxVal]. */
export class Hardtanh extends InPlaceActivation {
  /** The lower bound. */
  readonly minVal: number;
  /** The upper bound. */
  readonly maxVal: number;

  constructor(...args: ArgumentsOf<typeof hardtanhArguments>) {
    const { minVal, maxVal, inplace } = hardtanhArguments(...args);
    super('Hardtanh', inplace);
    checkNumber('Hardtanh', 'minVal', minVal);
    checkNumber('Hardtanh', 'maxVal', maxVal, { above: minVal });
    this.minVal = minVal;
    this.maxVal = maxVal;
  }

  forward(input: Tensor): Tensor {
    requireTensor(input, 'Hardtanh');
    const { minVal, maxVal } = this;
    return this.inplace ? input.hardtanh_({ minVal, maxVal }) : hardtanh(input, { minVal, maxVal });
  }

  override extraRepr(): string {
    return joined(`minVal=${this.minVal}, maxVal=${this.maxVal}`, super.extraRepr());
  }
}

const thresholdArguments = defineArguments(
  'Threshold(threshold, value, inplace)',
  (limit: number, value: number, inplace = false) => ({ limit, value, inplace }),
);

/** x above the threshold, `value` elsewhere. */
export class Threshold extends InPlaceActivation {
  /** Inputs up to it are replaced. */
  readonly threshold: number;
  /** The replacement. */
  readonly value: number;

  constructor(...args: ArgumentsOf<typeof thresholdArguments>) {
    const { limit, value, inplace } = thresholdArguments(...args);
    super('Threshold', inplace);
    checkNumber('Threshold', 'threshold', limit);
    checkNumber('Threshold', 'value', value);
    this.threshold = limit;
    this.value = value;
  }

  forward(input: Tensor): Tensor {
    if (!this.inplace) return threshold(input, this.threshold, this.value);
    requireTensor(input, 'Threshold');
    return overwrite('threshold_', input, (t) => threshold(t, this.threshold, this.value));
  }

  override extraRepr(): string {
    return joined(`threshold=${this.threshold}, value=${this.value}`, super.extraRepr());
  }
}
