/** Activation functions as modules. */
import { checkNumber, checkOneOf, checkSizesOf } from '../core/options.js';
import { type ArgumentsOf, defineArguments } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { type GeluApproximate, gelu, softplus } from '../ops/activation.js';
import { requireTensor } from '../ops/operand.js';
import { hardshrink, prelu, softshrink } from '../ops/piecewise-activations.js';
import { glu, logsigmoid, softsign, tanhshrink } from '../ops/smooth-activations.js';
import { logSoftmax, softmax } from '../ops/softmax.js';
import { constant_ } from './init.js';
import { type LayerOptions, makeParameter } from './layers.js';
import { Module } from './module.js';
import type { Parameter } from './parameter.js';

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

const preluArguments = defineArguments(
  'PReLU(numParameters, init, *, device, dtype)',
  (numParameters = 1, init = 0.25, place: LayerOptions = {}) => ({
    numParameters,
    init,
    place,
  }),
);

/** x above 0, weight * x below; the weight is learned. */
export class PReLU extends Module {
  /** The learned slope for negative inputs, one or one for each channel. */
  weight: Parameter;
  private readonly init: number;

  constructor(...args: ArgumentsOf<typeof preluArguments>) {
    super();
    const { numParameters, init, place } = preluArguments(...args);
    checkSizesOf('PReLU', { numParameters }, 1);
    checkNumber('PReLU', 'init', init);
    this.init = init;
    this.weight = makeParameter([numParameters], place);
    this.resetParameters();
  }

  /** Sets all slopes to the initial one. */
  resetParameters(): void {
    constant_(this.weight, this.init);
  }

  forward(input: Tensor): Tensor {
    return prelu(input, this.weight);
  }

  override extraRepr(): string {
    return `numParameters=${this.weight.numel()}`;
  }
}

const geluArguments = defineArguments(
  'GELU(approximate)',
  (approximate: GeluApproximate = 'none') => ({ approximate }),
);

/** x times the cumulative normal distribution of x. */
export class GELU extends Module {
  /** `none`, or `tanh` for the approximation by tanh. */
  readonly approximate: GeluApproximate;

  constructor(...args: ArgumentsOf<typeof geluArguments>) {
    super();
    const { approximate } = geluArguments(...args);
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

const softplusArguments = defineArguments(
  'Softplus(beta, threshold)',
  (beta = 1, threshold = 20) => ({ beta, limit: threshold }),
);

/** log(1 + exp(beta x)) / beta. */
export class Softplus extends Module {
  /** The sharpness of the bend. */
  readonly beta: number;
  /** Inputs times `beta` above it are returned as they are. */
  readonly threshold: number;

  constructor(...args: ArgumentsOf<typeof softplusArguments>) {
    super();
    const { beta, limit } = softplusArguments(...args);
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

const hardshrinkArguments = defineArguments('Hardshrink(lambd)', (lambd = 0.5) => ({ lambd }));

/** 0 within [-lambd, lambd], x outside. */
export class Hardshrink extends Module {
  /** The bound of the interval that becomes 0. */
  readonly lambd: number;

  constructor(...args: ArgumentsOf<typeof hardshrinkArguments>) {
    super();
    const { lambd } = hardshrinkArguments(...args);
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

const softshrinkArguments = defineArguments('Softshrink(lambd)', (lambd = 0.5) => ({ lambd }));

/** 0 within [-lambd, lambd], x moved by lambd towards 0 outside. */
export class Softshrink extends Module {
  /** The bound of the interval that becomes 0. */
  readonly lambd: number;

  constructor(...args: ArgumentsOf<typeof softshrinkArguments>) {
    super();
    const { lambd } = softshrinkArguments(...args);
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

const gluArguments = defineArguments('GLU(dim)', (dim = -1) => ({ dim }));

/** The first half along a dim times the sigmoid of the second. */
export class GLU extends Module {
  /** The dim along which the module works. */
  readonly dim: number;

  constructor(...args: ArgumentsOf<typeof gluArguments>) {
    super();
    const { dim } = gluArguments(...args);
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

/** Base of the activations along one dim. */
abstract class AlongDim extends Module {
  readonly dim: number;

  constructor(name: string, dim: number) {
    super();
    checkNumber(name, 'dim', dim, { whole: true });
    this.dim = dim;
  }

  override extraRepr(): string {
    return `dim=${this.dim}`;
  }
}

const alongDim = (name: string) => defineArguments(`${name}(dim)`, (dim = -1) => ({ dim }));

const softmaxArguments = alongDim('Softmax');

/** softmax along a dim. */
export class Softmax extends AlongDim {
  constructor(...args: ArgumentsOf<typeof softmaxArguments>) {
    super('Softmax', softmaxArguments(...args).dim);
  }

  forward(input: Tensor): Tensor {
    return softmax(input, this.dim);
  }
}

const softminArguments = alongDim('Softmin');

/** softmax of -x along a dim. */
export class Softmin extends AlongDim {
  constructor(...args: ArgumentsOf<typeof softminArguments>) {
    super('Softmin', softminArguments(...args).dim);
  }

  forward(input: Tensor): Tensor {
    requireTensor(input, 'Softmin');
    return softmax(input.neg(), this.dim);
  }
}

const logSoftmaxArguments = alongDim('LogSoftmax');

/** log of softmax along a dim. */
export class LogSoftmax extends AlongDim {
  constructor(...args: ArgumentsOf<typeof logSoftmaxArguments>) {
    super('LogSoftmax', logSoftmaxArguments(...args).dim);
  }

  forward(input: Tensor): Tensor {
    return logSoftmax(input, this.dim);
  }
}
