/** Runs gradient rules. Errors of ops that a rule runs name what the program called in forward. */
import { onBehalfOf } from '../core/caller-name.js';
import { formatShape } from '../core/shape.js';
import type { Gradients, Node } from './node.js';
import { OpNode } from './op-node.js';

/** The gradients of a node's inputs. */
export function applyRule(node: Node, grads: Gradients): Gradients {
  try {
    return node.apply(grads);
  } catch (error) {
    if (!(node instanceof OpNode)) throw error;
    const call = node.calledBy ?? node.name;
    throw onBehalfOf(error, call, () => `backward of ${call}(${inputsOf(node)})`);
  }
}

/** The inputs that get a gradient: `float32[4, 3] on cpu`. */
function inputsOf(node: OpNode): string {
  const given = node.edges.flatMap((edge, i) => (edge === null ? [] : [i]));
  return given
    .map((i) => `${node.inputDtype(i)}${formatShape(node.inputShape(i))} on ${node.inputDevice(i)}`)
    .join(', ');
}
