/** Activation functions as modules that can overwrite their input instead of allocating. */
import { checkFlag, checkNumber, unexpected } from '../core/options.js';
import { type ArgumentsOf, defineArguments } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { celu, hardtanh, threshold } from '../ops/activation-composites.js';
import { overwrite } from '../ops/composite.js';
import { requireTensor } from '../ops/operand.js';
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

const inPlaceOnly = (name: string) =>
  defineArguments(`${name}(inplace)`, (inplace = false) => ({ inplace }));

const reluArguments = inPlaceOnly('ReLU');

/** max(x, 0). */
export class ReLU extends InPlaceActivation {
  constructor(...args: ArgumentsOf<typeof reluArguments>) {
    super('ReLU', reluArguments(...args).inplace);
  }

  forward(input: Tensor): Tensor {
    requireTensor(input, 'ReLU');
    return this.inplace ? input.relu_() : input.relu();
  }
}

const relu6Arguments = inPlaceOnly('ReLU6');

/** min(max(x, 0), 6). */
export class ReLU6 extends InPlaceActivation {
  constructor(...args: ArgumentsOf<typeof relu6Arguments>) {
    super('ReLU6', relu6Arguments(...args).inplace);
  }

  forward(input: Tensor): Tensor {
    requireTensor(input, 'ReLU6');
    return this.inplace ? input.relu6_() : input.relu6();
  }
}

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

const seluArguments = inPlaceOnly('SELU');

/** The elu that keeps mean 0 and variance 1. */
export class SELU extends InPlaceActivation {
  constructor(...args: ArgumentsOf<typeof seluArguments>) {
    super('SELU', seluArguments(...args).inplace);
  }

  forward(input: Tensor): Tensor {
    requireTensor(input, 'SELU');
    return this.inplace ? input.selu_() : input.selu();
  }
}

const siluArguments = inPlaceOnly('SiLU');

/** x * sigmoid(x). */
export class SiLU extends InPlaceActivation {
  constructor(...args: ArgumentsOf<typeof siluArguments>) {
    super('SiLU', siluArguments(...args).inplace);
  }

  forward(input: Tensor): Tensor {
    requireTensor(input, 'SiLU');
    return this.inplace ? input.silu_() : input.silu();
  }
}

const mishArguments = inPlaceOnly('Mish');

/** x tanh(softplus(x)). */
export class Mish extends InPlaceActivation {
  constructor(...args: ArgumentsOf<typeof mishArguments>) {
    super('Mish', mishArguments(...args).inplace);
  }

  forward(input: Tensor): Tensor {
    requireTensor(input, 'Mish');
    return this.inplace ? input.mish_() : input.mish();
  }
}

const hardsigmoidArguments = inPlaceOnly('Hardsigmoid');

/** relu6(x + 3) / 6. */
export class Hardsigmoid extends InPlaceActivation {
  constructor(...args: ArgumentsOf<typeof hardsigmoidArguments>) {
    super('Hardsigmoid', hardsigmoidArguments(...args).inplace);
  }

  forward(input: Tensor): Tensor {
    requireTensor(input, 'Hardsigmoid');
    return this.inplace ? input.hardsigmoid_() : input.hardsigmoid();
  }
}

const hardswishArguments = inPlaceOnly('Hardswish');

/** x relu6(x + 3) / 6. */
export class Hardswish extends InPlaceActivation {
  constructor(...args: ArgumentsOf<typeof hardswishArguments>) {
    super('Hardswish', hardswishArguments(...args).inplace);
  }

  forward(input: Tensor): Tensor {
    requireTensor(input, 'Hardswish');
    return this.inplace ? input.hardswish_() : input.hardswish();
  }
}

const hardtanhArguments = defineArguments(
  'Hardtanh(minVal, maxVal, inplace)',
  (minVal = -1, maxVal = 1, inplace = false) => ({ minVal, maxVal, inplace }),
);

/** Each element moved into [minVal, maxVal]. */
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

/** x above the threshold, `value` else. */
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
