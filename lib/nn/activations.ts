/** Activation functions as modules. Those with `inplace` overwrite their input instead of allocating. */
import { checkNumber, checkOneOf, checkSizesOf, optionsOf, unexpected } from '../core/options.js';
import type { Tensor } from '../core/tensor.js';
import { type GeluApproximate, gelu, softplus } from '../ops/activation.js';
import { celu, glu, hardshrink, hardtanh, logsigmoid, prelu, softshrink, softsign, tanhshrink, threshold } from '../ops/activation-composites.js';
import { full } from '../ops/factories.js';
import { requireTensor } from '../ops/operand.js';
import { logSoftmax, softmax } from '../ops/softmax.js';
import type { LayerOptions } from './layers.js';
import { Module } from './module.js';
import { Parameter } from './parameter.js';

/** Options of activations that can work in place. */
export interface InPlaceOption {
  /** Overwrite the input. */
  inplace?: boolean;
}

/** An activation with an in-place form. */
abstract class InPlaceActivation extends Module {
  readonly inplace: boolean;

  constructor(options: InPlaceOption = {}) {
    super();
    const { inplace = false } = optionsOf(this.constructor.name, options, 'inplace');
    this.inplace = inplace;
  }

  override extraRepr(): string {
    return this.inplace ? 'inplace=true' : '';
  }
}

const joined = (...facts: readonly string[]): string => facts.filter((f) => f !== '').join(', ');

/** max(x, 0). */
export class ReLU extends InPlaceActivation {
  forward(input: Tensor): Tensor {
    requireTensor(input, 'ReLU');
    return this.inplace ? input.relu_() : input.relu();
  }
}

/** min(max(x, 0), 6). */
export class ReLU6 extends InPlaceActivation {
  forward(input: Tensor): Tensor {
    requireTensor(input, 'ReLU6');
    return this.inplace ? input.relu6_() : input.relu6();
  }
}

/** x above 0, negativeSlope * x below. */
export class LeakyReLU extends InPlaceActivation {
  readonly negativeSlope: number;

  constructor(negativeSlope = 0.01, options: InPlaceOption = {}) {
    super(options);
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

/** x above 0, weight * x below; the weight is learned. */
export class PReLU extends Module {
  weight: Parameter;

  constructor(numParameters = 1, options: LayerOptions & { init?: number } = {}) {
    super();
    const { init = 0.25, ...place } = optionsOf('PReLU', options, 'init dtype device');
    checkSizesOf('PReLU', { numParameters }, 1);
    checkNumber('PReLU', 'init', init);
    this.weight = new Parameter(full([numParameters], init, place));
  }

  forward(input: Tensor): Tensor {
    return prelu(input, this.weight);
  }

  override extraRepr(): string {
    return `numParameters=${this.weight.numel()}`;
  }
}

/** x above 0, alpha (exp(x) - 1) below. */
export class ELU extends InPlaceActivation {
  readonly alpha: number;

  constructor(alpha = 1, options: InPlaceOption = {}) {
    super(options);
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

/** x above 0, alpha (exp(x / alpha) - 1) below. */
export class CELU extends InPlaceActivation {
  readonly alpha: number;

  constructor(alpha = 1, options: InPlaceOption = {}) {
    super(options);
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

/** The elu that keeps mean 0 and variance 1. */
export class SELU extends InPlaceActivation {
  forward(input: Tensor): Tensor {
    requireTensor(input, 'SELU');
    return this.inplace ? input.selu_() : input.selu();
  }
}

/** x times the normal distribution function of x. */
export class GELU extends Module {
  readonly approximate: GeluApproximate;

  constructor(options: { approximate?: GeluApproximate } = {}) {
    super();
    const { approximate = 'none' } = optionsOf('GELU', options, 'approximate');
    checkOneOf('GELU', 'approximate', approximate, ['none', 'tanh']);
    this.approximate = approximate;
  }

  forward(input: Tensor): Tensor {
    return gelu(input, { approximate: this.approximate });
  }

  override extraRepr(): string {
    return `approximate='${this.approximate}'`;
  }
}

/** x * sigmoid(x). */
export class SiLU extends InPlaceActivation {
  forward(input: Tensor): Tensor {
    requireTensor(input, 'SiLU');
    return this.inplace ? input.silu_() : input.silu();
  }
}

/** x tanh(softplus(x)). */
export class Mish extends InPlaceActivation {
  forward(input: Tensor): Tensor {
    requireTensor(input, 'Mish');
    return this.inplace ? input.mish_() : input.mish();
  }
}

/** Hyperbolic tangent. */
export class Tanh extends Module {
  forward(input: Tensor): Tensor {
    requireTensor(input, 'Tanh');
    return input.tanh();
  }
}

/** 1 / (1 + exp(-x)). */
export class Sigmoid extends Module {
  forward(input: Tensor): Tensor {
    requireTensor(input, 'Sigmoid');
    return input.sigmoid();
  }
}

/** log(sigmoid(x)). */
export class LogSigmoid extends Module {
  forward(input: Tensor): Tensor {
    return logsigmoid(input);
  }
}

/** relu6(x + 3) / 6. */
export class Hardsigmoid extends InPlaceActivation {
  forward(input: Tensor): Tensor {
    requireTensor(input, 'Hardsigmoid');
    return this.inplace ? input.hardsigmoid_() : input.hardsigmoid();
  }
}

/** x relu6(x + 3) / 6. */
export class Hardswish extends InPlaceActivation {
  forward(input: Tensor): Tensor {
    requireTensor(input, 'Hardswish');
    return this.inplace ? input.hardswish_() : input.hardswish();
  }
}

/** Each element moved into [minVal, maxVal]. */
export class Hardtanh extends InPlaceActivation {
  readonly minVal: number;
  readonly maxVal: number;

  constructor(minVal = -1, maxVal = 1, options: InPlaceOption = {}) {
    super(options);
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

/** log(1 + exp(beta x)) / beta. */
export class Softplus extends Module {
  readonly beta: number;
  readonly threshold: number;

  constructor(beta = 1, limit = 20) {
    super();
    checkNumber('Softplus', 'beta', beta);
    checkNumber('Softplus', 'threshold', limit);
    this.beta = beta;
    this.threshold = limit;
  }

  forward(input: Tensor): Tensor {
    return softplus(input, { beta: this.beta, threshold: this.threshold });
  }

  override extraRepr(): string {
    return `beta=${this.beta}, threshold=${this.threshold}`;
  }
}

/** x / (1 + |x|). */
export class Softsign extends Module {
  forward(input: Tensor): Tensor {
    return softsign(input);
  }
}

/** x - tanh(x). */
export class Tanhshrink extends Module {
  forward(input: Tensor): Tensor {
    return tanhshrink(input);
  }
}

/** 0 within [-lambd, lambd], x outside. */
export class Hardshrink extends Module {
  readonly lambd: number;

  constructor(lambd = 0.5) {
    super();
    checkNumber('Hardshrink', 'lambd', lambd);
    this.lambd = lambd;
  }

  forward(input: Tensor): Tensor {
    return hardshrink(input, { lambd: this.lambd });
  }

  override extraRepr(): string {
    return String(this.lambd);
  }
}

/** 0 within [-lambd, lambd], x moved towards 0 outside. */
export class Softshrink extends Module {
  readonly lambd: number;

  constructor(lambd = 0.5) {
    super();
    checkNumber('Softshrink', 'lambd', lambd, { from: 0 });
    this.lambd = lambd;
  }

  forward(input: Tensor): Tensor {
    return softshrink(input, { lambd: this.lambd });
  }

  override extraRepr(): string {
    return String(this.lambd);
  }
}

/** x above the threshold, `value` else. */
export class Threshold extends Module {
  readonly threshold: number;
  readonly value: number;

  constructor(limit: number, value: number) {
    super();
    checkNumber('Threshold', 'threshold', limit);
    checkNumber('Threshold', 'value', value);
    this.threshold = limit;
    this.value = value;
  }

  forward(input: Tensor): Tensor {
    return threshold(input, this.threshold, this.value);
  }

  override extraRepr(): string {
    return `threshold=${this.threshold}, value=${this.value}`;
  }
}

/** The first half along a dim times the sigmoid of the second. */
export class GLU extends Module {
  readonly dim: number;

  constructor(dim = -1) {
    super();
    checkNumber('GLU', 'dim', dim, { whole: true });
    this.dim = dim;
  }

  forward(input: Tensor): Tensor {
    return glu(input, this.dim);
  }

  override extraRepr(): string {
    return `dim=${this.dim}`;
  }
}

/** An activation along one dim. */
abstract class AlongDim extends Module {
  readonly dim: number;

  constructor(dim = -1) {
    super();
    checkNumber(this.constructor.name, 'dim', dim, { whole: true });
    this.dim = dim;
  }

  override extraRepr(): string {
    return `dim=${this.dim}`;
  }
}

/** softmax along a dim. */
export class Softmax extends AlongDim {
  forward(input: Tensor): Tensor {
    return softmax(input, this.dim);
  }
}

/** softmax of -x along a dim. */
export class Softmin extends AlongDim {
  forward(input: Tensor): Tensor {
    requireTensor(input, 'Softmin');
    return softmax(input.neg(), this.dim);
  }
}

/** log of softmax along a dim. */
export class LogSoftmax extends AlongDim {
  forward(input: Tensor): Tensor {
    return logSoftmax(input, this.dim);
  }
}
