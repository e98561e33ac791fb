/** What ops say of their calls beside values: states, memory that they manage, repetitions. */
import type { AnyOp } from '../../core/op.js';
import type { Tensor } from '../../core/tensor.js';
import type { Node } from '../graph/node.js';
import { RESHARD } from '../partition/tags.js';
import type { Recorder } from './recorder.js';

/** Takes over what the op says of a call that is a node now. */
export function recordOpFacts(
  recorder: Recorder,
  node: Node,
  inputs: readonly Tensor[],
  into: Tensor | null,
  outputs: readonly Tensor[],
): void {
  const { params } = node;
  const op = node.op as AnyOp;
  for (const i of op.manages?.(params) ?? []) recorder.guards.addManaged(inputs[i] as Tensor);
  if (op.runsAgain?.(params)) node.tags = new Set([...node.tags, RESHARD]);
  if (recorder.level === 'front' || recorder.isWholeStep) recordState(recorder, op, params);
  if (recorder.isWholeStep) recorder.origins.addCall(node, inputs, into, outputs);
}

/** Guards compare what decides the gradient of a call. */
export function recordState(recorder: Recorder, op: AnyOp, params: object): void {
  if (op.gradientState === null) return;
  const { path } = recorder.place();
  const where = path === '' ? '' : ` of module ${path}`;
  const state = (): unknown => op.gradientState?.(params);
  recorder.guards.addState(`the state of ${op.name}${where}`, state);
}
