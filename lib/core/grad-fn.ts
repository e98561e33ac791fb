/** The nodes of the autograd graph as the program sees them. */
import type { Tensor } from './tensor.js';

type Grads = readonly (Tensor | null)[];

/**
 * A node of the autograd graph: the op that made a tensor. @see PyTorch `torch.autograd.graph.Node`
 */
export interface GradFn {
  readonly name: string;
  /**
   * Runs after the node with the gradients of its inputs and outputs; may return replacements of
   * the former.
   */
  registerHook(hook: (gradInputs: Grads, gradOutputs: Grads) => Grads | undefined | void): {
    remove(): void;
  };
  /** Runs before the node with the gradients of its outputs; may return replacements. */
  registerPrehook(hook: (gradOutputs: Grads) => Grads | undefined | void): { remove(): void };
}
