/**
 * Gradients of parts of a tensor, as those of `chunk` and `unbind`. A backward pass holds them
 * until all have arrived, and writes them into one tensor, instead of adding tensors that are 0
 * beside each part.
 */
import type { AnyOp } from '../core/op.js';
import { type Shape, sameShape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { isAnomalyEnabled } from './anomaly.js';
import { isGradEnabled } from './grad-mode.js';
import type { Edge, Gradients, Node } from './node.js';
import { OpNode } from './op-node.js';

/** The gradient of one part of an output. */
export interface HeldGradient {
  readonly op: AnyOp;
  readonly params: object;
  readonly g: Tensor;
  readonly outputNr: number;
  readonly shape: Shape;
  readonly strides: Shape;
}

/**
 * What a node would pass on, if it can be held: its rule is not recorded, and nobody sees its
 * result.
 */
export function heldGradient(node: Node, grads: Gradients): HeldGradient | null {
  if (!(node instanceof OpNode) || node.op.joinGradients === null || node.postHooks !== null)
    return null;
  const [g] = grads;
  if (g === null || g === undefined || g.dtype !== node.inputDtype(0)) return null;
  if (!node.needs(0) || isGradEnabled() || isAnomalyEnabled()) return null;
  const { op, params } = node;
  const { outputNr } = node.edges[0] as Edge;
  return { op, params, g, outputNr, shape: node.inputShape(0), strides: node.inputStrides(0) };
}

/**
 * Calls `deliver` with the gradient of each output, once for each kind of part. `isOurs`: whether
 * the backward pass made the memory of a gradient, and no user code sees it.
 */
export function joinHeld(
  held: readonly HeldGradient[],
  isOurs: (g: Tensor) => boolean,
  deliver: (outputNr: number, g: Tensor) => void,
): void {
  const rest = new Set(held);
  for (const first of rest) {
    const group = [...rest].filter((each) => isOfSameWhole(each, first));
    for (const each of group) rest.delete(each);
    const { op, shape, strides, outputNr } = first;
    const join = op.joinGradients as NonNullable<AnyOp['joinGradients']>;
    deliver(outputNr, join(group, shape, strides, haveMemoryAlone(group, isOurs)));
  }
}

const isOfSameWhole = (a: HeldGradient, b: HeldGradient): boolean =>
  a.op === b.op &&
  a.outputNr === b.outputNr &&
  sameShape(a.shape, b.shape) &&
  sameShape(a.strides, b.strides);

/** Whether gradients are views of one storage that nobody else owns. */
function haveMemoryAlone(group: readonly HeldGradient[], isOurs: (g: Tensor) => boolean): boolean {
  const [{ g: first }] = group as [HeldGradient];
  const { storage } = first;
  return (
    storage !== null &&
    storage.retains === group.length &&
    isOurs(first) &&
    group.every(({ g }) => g.storage === storage)
  );
}
