/** Whether the program differentiates gradients. */

/**
 * Set by the first backward pass with `createGraph`, also one in a capture. From then on compiled
 * functions keep those of their inputs that get a gradient, too, which second derivatives need.
 *
 * @internal
 */
export const higherOrder: { isUsed: boolean } = { isUsed: false };
