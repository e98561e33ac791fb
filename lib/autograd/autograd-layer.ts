/** The top layer of the dispatcher: records a node for every op whose inputs require gradients. */
import { decomposed } from '../core/decompose.js';
import { belowAutograd } from '../core/dispatch.js';
import { InPlaceError } from '../core/errors.js';
import type { AnyOp } from '../core/op.js';
import type { Tensor } from '../core/tensor.js';
import { anomalyStack } from './anomaly.js';
import { isGradEnabled } from './grad-mode.js';
import { changeHistory } from './node.js';
import { hasGradient, OpNode } from './op-node.js';
import { isPacking } from './saved-tensor.js';
import { checkViewChange, rebaseView } from './view-history.js';

export function autogradLayer(
  op: AnyOp,
  inputs: readonly Tensor[],
  params: object,
  into: Tensor | null,
): Tensor[] {
  if (into !== null) return [changeInPlace(op, inputs, params, into)];
  const records = op.vjp !== null && isGradEnabled() && someRequireGrad(inputs);
  if (op.mutates !== null) return mutateInputs(op, inputs, params);
  // A backward op has no gradient rule, so for a second derivative its decomposition is recorded.
  if (op.vjp === null && op.decompose !== null && isGradEnabled() && someRequireGrad(inputs))
    return [...decomposed(op, inputs, params)];
  // A hook sees the inputs before the op runs: a checkpoint that has what it needs runs it no more.
  const node = records && isPacking() ? nodeOf(op, inputs, params) : null;
  const outputs = belowAutograd(op, inputs, params, null);
  if (op.view !== null) linkView(op, inputs[0] as Tensor, outputs[0] as Tensor);
  if (records) record(node ?? nodeOf(op, inputs, params), outputs);
  return outputs;
}

function someRequireGrad(inputs: readonly Tensor[]): boolean {
  for (let i = 0; i < inputs.length; i++) if ((inputs[i] as Tensor).isTracked) return true;
  return false;
}

function nodeOf(op: AnyOp, inputs: readonly Tensor[], params: object): OpNode {
  const node = new OpNode(op, inputs, params);
  node.forwardStack = anomalyStack();
  node.saveInputs(inputs, null);
  return node;
}

/** Makes the node of a call whose outputs another op has computed. @internal */
export function recordCall(
  op: AnyOp,
  inputs: readonly Tensor[],
  outputs: readonly Tensor[],
  params: object,
): void {
  record(nodeOf(op, inputs, params), outputs);
}

function record(node: OpNode, outputs: readonly Tensor[]): void {
  node.numOutputs = outputs.length;
  for (let i = 0; i < outputs.length; i++) {
    const output = outputs[i] as Tensor;
    if (!hasGradient(node.op, output, i)) continue;
    output.node = node;
    output.outputNr = i;
  }
  node.saveOutputs(outputs);
}

/** Links a view to its base. A detached view shares only the version counter. */
function linkView(op: AnyOp, input: Tensor, output: Tensor): void {
  if (input.storage === null) return;
  output.versionCounter = input.sharedVersion();
  output.nodeVersion = output.versionCounter.value;
  if (op.vjp === null) return;
  output.base = input.base ?? input;
  if (!isGradEnabled() && input.isTracked) {
    output.inPlaceForbidden =
      'it is a view that was made under noGrad of a tensor that requires gradients';
  }
}

/**
 * Runs an op that overwrites inputs, such as an optimizer step: without a gradient, it increments
 * the versions of these inputs.
 */
function mutateInputs(op: AnyOp, inputs: readonly Tensor[], params: object): Tensor[] {
  const changed = (op.mutates as NonNullable<AnyOp['mutates']>)(inputs, params);
  if (isGradEnabled()) for (const i of changed) checkWithoutHistory(op, inputs[i] as Tensor);
  const outputs = belowAutograd(op, inputs, params, null);
  for (const i of changed) (inputs[i] as Tensor).bumpVersion();
  return outputs;
}

function changeInPlace(op: AnyOp, inputs: readonly Tensor[], params: object, into: Tensor): Tensor {
  const tracking = isGradEnabled() && (into.isTracked || someRequireGrad(inputs));
  // A view created under noGrad does not know whether its base requires a gradient.
  if (tracking || (isGradEnabled() && into.base?.isTracked === true)) {
    checkLeaf(op, into);
    checkViewChange(op, into);
  }
  // An op without a gradient rule detaches the tensor from its history.
  const records = op.vjp !== null || into.isTracked;
  const node =
    tracking && into.dtype.isFloatingPoint && records ? new OpNode(op, inputs, params) : null;
  if (node !== null) {
    node.forwardStack = anomalyStack();
    // Copies keep the history, which second derivatives follow.
    node.saveInputs(inputs, (t) =>
      t.storage !== null && t.storage === into.storage ? t.clone() : t,
    );
  }
  belowAutograd(op, inputs, params, into);
  into.bumpVersion();
  if (node !== null) {
    if (into.base !== null) rebaseView(into, node, inputs.indexOf(into));
    else {
      changeHistory(into, node, 0);
      into.leafRequiresGrad = false;
    }
    node.saveOutputs([into]);
  }
  return into;
}

/**
 * @throws InPlaceError for a tensor that requires a gradient: its history would no longer match its
 * values.
 */
function checkWithoutHistory(op: AnyOp, changed: Tensor): void {
  checkLeaf(op, changed);
  if (!changed.isTracked) return;
  throw new InPlaceError(
    `${op.name}: it has no gradient, so it cannot change a tensor that was computed from one ` +
      'that requires a gradient. Change it inside noGrad(() => ...).',
    {
      op: op.name,
      shape: changed.sizes,
    },
  );
}

function checkLeaf(op: AnyOp, into: Tensor): void {
  const leaf = into.base ?? into;
  if (!leaf.leafRequiresGrad) return;
  const what =
    into.base === null
      ? 'a leaf tensor that requires a gradient'
      : 'a view of a leaf tensor that requires a gradient';
  throw new InPlaceError(
    `${op.name}: ${what} cannot be changed in place, its gradient would be lost. Change it ` +
      'inside noGrad(() => ...), or use a copy.',
    {
      op: op.name,
      shape: into.sizes,
    },
  );
}
