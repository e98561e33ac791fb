/** The `inductor` namespace: settings of the backend of that name. */
import { checkFlag, unexpected } from '../core/options.js';

/** Settings of backend `'inductor'`. @see PyTorch `torch._inductor.config` */
export interface InductorConfig {
  /**
   * Whether graphs with collectives are reordered so that computation runs beside communication, as
   * `reorderForOverlap` does. Null, the default: where that saves time by the estimates. False: all
   * nodes keep the order of the program. It changes no result. A change captures functions anew.
   */
  reorderForComputeCommOverlap: boolean | null;
  /**
   * Whether random numbers are those of uncompiled code. They are, whatever it is: a number follows
   * from the seed and its place in the tensor, so that fusing and recomputing change none.
   */
  fallbackRandom: boolean;
}

let reorderForComputeCommOverlap: boolean | null = null;
let fallbackRandom = false;

/**
 * Settings of backend `'inductor'`. @throws ArgumentError for what is no boolean
 *
 * @example
 * inductor.config.reorderForComputeCommOverlap = false;
 * const inOrder = compile((t: Tensor) => t.sin(), { backend: 'inductor' });
 * inOrder(x);
 * inductor.config.reorderForComputeCommOverlap = null;
 */
export const config: InductorConfig = Object.seal({
  get reorderForComputeCommOverlap(): boolean | null {
    return reorderForComputeCommOverlap;
  },
  set reorderForComputeCommOverlap(value: boolean | null) {
    if (value !== null && typeof value !== 'boolean')
      throw unexpected(
        'inductor.config',
        'reorderForComputeCommOverlap',
        'a boolean or null',
        value,
      );
    reorderForComputeCommOverlap = value;
  },
  get fallbackRandom(): boolean {
    return fallbackRandom;
  },
  set fallbackRandom(value: boolean) {
    checkFlag('inductor.config', 'fallbackRandom', value);
    fallbackRandom = value;
  },
});
