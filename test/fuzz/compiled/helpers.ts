/** What random programs use beside the library: inputs, functions and modules of users. */
import { autograd, float64, nn, type Tensor, tensor } from '../../../lib/index.js';

/** Values between -2 and 2, others for each seed. */
function plain(shape: readonly number[], seed: number): Tensor {
  const count = shape.reduce((product, size) => product * size, 1);
  const values = Array.from({ length: count }, (_, i) => 2 * Math.sin(1 + 7.3 * seed + 1.7 * i));
  return tensor(values, { dtype: float64 }).reshape([...shape]);
}

const leaf = (shape: readonly number[], seed: number): Tensor =>
  plain(shape, seed).detach().requiresGrad_();

/** A tensor with history. */
const inner = (shape: readonly number[], seed: number): Tensor => leaf(shape, seed).mul(1.5);

/** Its gradient is not that of its forward. */
class Scaled extends autograd.Function {
  static forward(ctx: autograd.FunctionContext, x: Tensor, factor: number): Tensor {
    ctx.saveForBackward(x);
    ctx.factor = factor;
    return x.mul(factor);
  }
  static backward(ctx: autograd.FunctionContext, g: Tensor): (Tensor | null)[] {
    const [x] = ctx.savedTensors;
    return [g.mul(x as Tensor).mul(ctx.factor as number), null];
  }
}

class Pair extends autograd.Function {
  static forward(_: autograd.FunctionContext, x: Tensor): Tensor[] {
    return [x.sin(), x.mul(2)];
  }
  static backward(_: autograd.FunctionContext, g: Tensor, other: Tensor): Tensor[] {
    return [g.add(other.mul(3))];
  }
}

class Doubled extends autograd.Function {
  static forward(ctx: autograd.FunctionContext, x: Tensor): Tensor {
    ctx.markDirty(x);
    return x.mul_(2);
  }
  static backward(_: autograd.FunctionContext, g: Tensor): Tensor[] {
    return [g.mul(2)];
  }
}

/** Keeps a running mean, a count and its latest input. */
class Keeper extends nn.Module {
  declare mean: Tensor;
  factor = 2;
  last: Tensor | null = null;
  readonly scale: nn.Parameter;

  constructor(size: number) {
    super();
    this.registerBuffer('mean', plain([size], 3));
    this.scale = new nn.Parameter(plain([size], 4));
  }

  forward(x: Tensor): Tensor {
    if (this.trainingFlag) this.mean.mul_(0.5).add_(x.detach().mean(0));
    const y = x.mul(this.scale).sub(this.mean).mul(this.factor);
    this.last = y.detach();
    return y;
  }
}

/** The layer in float64, so that rounding is no difference. */
const double = <M extends nn.Module>(module: M): M => module.to(float64);

const identity = (t: Tensor): Tensor => t;

export const helpers = { plain, leaf, inner, Scaled, Pair, Doubled, Keeper, double, identity };
