/** The end of a gradient's way: it is added into `.grad` of a leaf. */

import { isNonOverlappingAndDense } from '../core/shape.js';
import { heldOf, setGrad, type Tensor } from '../core/tensor.js';
import { ACCUMULATE_SEQUENCE, type Gradients, leaves, Node } from './node.js';

const NO_GRADIENTS: Gradients = [];

export class AccumulateGrad extends Node {
  readonly name = 'AccumulateGrad';
  readonly variable: Tensor;
  /** @internal set by the engine: gradients must keep their history */
  createGraph = false;

  constructor(variable: Tensor) {
    super(1, [], ACCUMULATE_SEQUENCE);
    this.variable = variable;
  }

  apply([given]: Gradients): Gradients {
    const { variable } = this;
    if (given === null || given === undefined) return NO_GRADIENTS;
    const grad = variable.sharding === null ? given : variable.sharding.fit(given);
    const before = variable.gradTensor;
    if (before === null) setGrad(variable, this.createGraph || !stealable(grad, variable) ? grad.clone() : grad);
    else if (this.createGraph) variable.grad = before.add(grad);
    else before.add_(grad);
    if (variable.postAccumulateHooks !== null) for (const hook of variable.postAccumulateHooks.values()) hook(variable);
    return NO_GRADIENTS;
  }
}

/** Whether nobody else looks at the gradient's memory, so that it can become `.grad` without a copy. */
function stealable(grad: Tensor, variable: Tensor): boolean {
  const storage = grad.storage;
  return (
    storage !== null &&
    storage.holds <= 1 &&
    storage.refs <= 2 &&
    grad.base === null &&
    storage.nbytes === heldOf(grad).nbytes &&
    // Of distributed ones, the gradient must be held as its tensor is.
    placedAlike(grad, variable) &&
    sameLayout(grad, variable) &&
    isNonOverlappingAndDense(grad.shape, grad.strides)
  );
}

function placedAlike(grad: Tensor, variable: Tensor): boolean {
  return grad.sharding === null || grad.sharding.spec === variable.sharding?.spec;
}

function sameLayout(a: Tensor, b: Tensor): boolean {
  for (let i = 0; i < a.shape.length; i++) if ((a.shape[i] as number) > 1 && a.strides[i] !== b.strides[i]) return false;
  return true;
}

/** The accumulator of a leaf; one for its life, so that hooks stay. */
export function accumulatorOf(t: Tensor): AccumulateGrad {
  let node = t.gradAccumulator as AccumulateGrad | null;
  if (node === null) {
    node = new AccumulateGrad(t);
    t.gradAccumulator = node;
  }
  return node;
}

leaves.accumulatorOf = accumulatorOf;
