/** The op that stands between the shards and the whole parameters in the graph of autograd. */
import { autograd, type Tensor } from '../../index.js';

/** What the op needs of a group. */
export interface UnshardedGroup {
  /** The whole parameters, which are in memory, as new tensors without history. */
  wholeParameters(): Tensor[];
  /** Gives the gradients of the shards for those of the whole parameters; null for none. */
  postBackward(grads: readonly (Tensor | null)[]): (Tensor | null)[];
}

/**
 * Whole parameters of shards. Its gradient reduces over the ranks and shards again. Backward comes
 * here when it is done with all uses of the parameters since this call: the node is older than
 * those of the uses, and younger than all that the module got.
 */
export class Unshard extends autograd.Function {
  static override keepsNoGrads = true;

  static forward(
    ctx: autograd.FunctionContext,
    group: UnshardedGroup,
    ...shards: Tensor[]
  ): Tensor[] {
    ctx['group'] = group;
    ctx.setMaterializeGrads(false);
    const whole = group.wholeParameters();
    ctx.markNonDifferentiable(...whole.filter((_, i) => shards[i]?.requiresGrad !== true));
    return whole;
  }

  static backward(ctx: autograd.FunctionContext, ...grads: (Tensor | null)[]): (Tensor | null)[] {
    return [null, ...(ctx['group'] as UnshardedGroup).postBackward(grads)];
  }
}
