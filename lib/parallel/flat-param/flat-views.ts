/** The op between a whole flat parameter and the parameters that modules use. */
import { type Device, type DType, library, type Shape, type Tensor } from '../../index.js';

/** What the op needs of a flat parameter. */
export interface ViewSource {
  /** The parameters as views of a whole flat tensor, without history. */
  viewsOf(flat: Tensor): Tensor[];
  /** The shapes of the parameters. */
  readonly shapes: readonly Shape[];
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
 * the size of the whole; here it is one, into which their gradients are copied. It does not
 * communicate; of other ops the results may not lie in the memory of an argument.
 */
const flatViews = library
  .customOp(
    'fsdp::flatViews',
    { communicates: 'wait', keepsNoTensors: true },
    (flat: Tensor, source: ViewSource, _like: FlatMemory): readonly Tensor[] =>
      source.viewsOf(flat),
  )
  .registerFake(({ dtype, device }, { shapes }) =>
    shapes.map((shape) => ({ shape, dtype, device })),
  )
  .registerDecomposition((flat, source) => source.viewsOf(flat))
  .registerAutograd({
    setupContext: (_ctx, [, source, like]) => ({ source, like }),
    state: (_flat, source) => source.trainable(),
    backward: ({ source, like }, ...grads) => [source.flatGradient(grads, like), null, null],
  });

/** The parameters as views of a whole flat tensor; frozen ones without history. */
export function viewsOfFlat(source: ViewSource, flat: Tensor): Tensor[] {
  const like = { numel: flat.numel(), dtype: flat.dtype, device: flat.device };
  const trainable = source.trainable();
  return flatViews(flat, source, like).map((view, i) => (trainable[i] ? view : view.detach()));
}
