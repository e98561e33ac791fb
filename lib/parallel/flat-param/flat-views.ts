/** The op between a whole flat parameter and the parameters that modules use. */
import { autograd, type Device, type DType, type Tensor } from '../../index.js';

/** What the op needs of a flat parameter. */
export interface ViewSource {
  /** The parameters as views of a whole flat tensor, without history. */
  viewsOf(flat: Tensor): Tensor[];
  /** Whether each of them gets a gradient. */
  trainable(): readonly boolean[];
  /** Gathers gradients in one flat tensor; null for those without. */
  flatGradient(grads: readonly (Tensor | null)[], like: FlatMemory): Tensor;
}

/** What a flat gradient is made of. */
export interface FlatMemory {
  readonly numel: number;
  readonly dtype: DType;
  readonly device: Device;
}

/**
 * All parameters of a flat tensor at once. The gradient of n views by n ops would be n tensors of
 * the size of the whole; here it is one, into which their gradients are copied.
 */
export class FlatViews extends autograd.Function {
  static override keepsNoGrads = true;

  static forward(ctx: autograd.FunctionContext, source: ViewSource, flat: Tensor): Tensor[] {
    ctx['source'] = source;
    ctx['like'] = { numel: flat.numel(), dtype: flat.dtype, device: flat.device };
    ctx.setMaterializeGrads(false);
    const views = source.viewsOf(flat);
    const trainable = source.trainable();
    ctx.markNonDifferentiable(...views.filter((_, i) => !trainable[i]));
    return views;
  }

  static backward(ctx: autograd.FunctionContext, ...grads: (Tensor | null)[]): (Tensor | null)[] {
    return [null, (ctx['source'] as ViewSource).flatGradient(grads, ctx['like'] as FlatMemory)];
  }
}
