/**
 * Tensors that a checkpoint keeps in memory. A node of autograd saves them, as any other node does:
 * scopes leave them, FakeTensorMode counts them as activations, a change in place is an error, and
 * an enclosing checkpoint drops and recomputes them. No gradient ever reaches the node.
 */
import { AutogradError, autograd, empty, type Tensor } from '../../index.js';

/** Its name stands in the error for a tensor that was changed in place. */
class Checkpoint extends autograd.Function {
  static forward(
    ctx: autograd.FunctionContext,
    _anchor: Tensor,
    owner: (ctx: autograd.FunctionContext) => void,
    ...tensors: Tensor[]
  ): Tensor {
    ctx.saveForBackward(...tensors);
    owner(ctx);
    return empty([0], { device: 'cpu' });
  }

  static backward(): never {
    throw new AutogradError('internal error: a gradient reached the inputs of a checkpoint');
  }
}

export class KeptTensors {
  /** A tensor without values, which stands for those that are kept. */
  readonly place: Tensor;
  private readonly node: autograd.Node;
  private ctx!: autograd.FunctionContext;

  constructor(tensors: readonly Tensor[]) {
    // A node is recorded only if an input requires a gradient.
    this.place = empty([0], { device: 'cpu', requiresGrad: true });
    const result = Checkpoint.apply(
      this.place,
      (ctx) => {
        this.ctx = ctx;
      },
      ...tensors,
    );
    this.node = result.gradFn as autograd.Node;
  }

  /** The tensors. @throws InPlaceError if one was changed in place */
  get(): Tensor[] {
    return this.ctx.readSaved(false) as Tensor[];
  }

  /** Keeps them no more. */
  release(): void {
    this.node.release();
  }
}
