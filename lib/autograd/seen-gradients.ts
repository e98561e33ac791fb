/**
 * Gradients of 16-bit tensors may arrive in float32, if nobody sees them. A hook that is registered
 * after that, while backward runs, sees the dtype of the tensor.
 */
import { float32 } from '../core/dtype.js';
import type { Gradients, Node } from './node.js';
import { OpNode } from './op-node.js';

/** The gradients of the outputs of a node, as hooks of it see them. */
export function asSeen(node: Node, grads: Gradients): Gradients {
  const [g] = grads;
  if (g?.dtype !== float32 || !node.isSeen || !(node instanceof OpNode)) return grads;
  const dtype = node.dtypeOfOutput();
  return dtype === null || dtype === float32 ? grads : [g.to(dtype), ...grads.slice(1)];
}
