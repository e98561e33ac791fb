/**
 * The gradients that a captured step assigns. Nothing in the graph reads `.grad` again, so only the
 * last assignment of each tensor remains, at the end.
 */
import { heldOf } from '../../core/sharding.js';
import type { Storage } from '../../core/storage.js';
import { Tensor } from '../../core/tensor.js';
import type { Recorder } from '../capture/recorder.js';
import type { RunValue } from '../graph/effects.js';
import type { Node, Value } from '../graph/node.js';
import { type NodeValue, ValueMap } from '../partition/value-map.js';

/** What a step does to `.grad` of a tensor. */
export interface StepGradient {
  /** The tensor whose `.grad` the step assigns, most often a parameter. */
  readonly owner: Tensor;
  /**
   * The last gradient that backward or the step assigned, on this rank; of a distributed tensor,
   * the local shard. Null if the step assigns null only.
   */
  readonly value: Value | null;
  /**
   * The effect at the end of the graph by which `.grad` becomes what the step leaves; null if
   * `.grad` is null before and after it.
   */
  readonly node: Node | null;
}

/**
 * Removes all assignments of `.grad` but the last of each tensor of the program, and moves those to
 * the end. Called before the capture ends.
 */
export function keepLastGradients(recorder: Recorder): StepGradient[] {
  const { graph, guards } = recorder;
  const owners = ownersOf(recorder);
  const last = new Map<Tensor, Node>();
  const values = new Map<Tensor, Value>();
  const others: Node[] = [];
  for (const node of graph.nodes) {
    if (node.effect !== 'setGrad') {
      others.push(node);
      continue;
    }
    const [target, gradient] = node.inputs as readonly Value[];
    const owner = owners.get(target as NodeValue);
    if (owner === undefined)
      return recorder.unsupported('the gradient of an unknown tensor was assigned');
    last.delete(owner);
    if (!recorder.isBorrowed(owner)) continue;
    last.set(owner, node);
    if (gradient !== undefined) values.set(owner, localOf(gradient));
  }
  graph.nodes.splice(0, graph.nodes.length, ...others);
  return [...last].map(([owner, node]) => {
    const position = recorder.positionOf(owner);
    const isNull = node.inputs.length === 1;
    const remainsNull = isNull && guards.expectsNoGrad(position < 0 ? owner : position);
    if (!remainsNull) graph.nodes.push(node);
    return { owner, value: values.get(owner) ?? null, node: remainsNull ? null : node };
  });
}

/** The tensors whose `.grad` was assigned, by their values. */
function ownersOf(recorder: Recorder): ValueMap<Tensor> {
  const owners = new ValueMap<Tensor>();
  for (const t of recorder.assignedGrads) {
    const value = recorder.known.get(recorder.distributed.has(t) ? heldOf(t) : t);
    if (value !== undefined && 'node' in value && !owners.has(value)) owners.set(value, t);
  }
  return owners;
}

/** The local shard of a value that `distribute` makes of it. */
function localOf(value: Value): Value {
  if ('number' in value || value.node.effect !== 'distribute') return value;
  return value.node.inputs[0] as Value;
}

/**
 * Makes gradients that a run left the only owners of their memory, which they else share with
 * intermediate results until these are collected. `others`: the inputs and the results of the run.
 */
export function ownGradients(
  gradients: readonly StepGradient[],
  others: readonly RunValue[],
): void {
  let shared: Set<Storage | null> | null = null;
  for (const { owner, node } of gradients) {
    const storage = node === null ? null : (owner.gradTensor?.storage ?? null);
    if (storage === null || storage.exposed || storage.handle === 0 || storage.retains !== 1)
      continue;
    shared ??= new Set(others.map((value) => (value instanceof Tensor ? value.storage : null)));
    if (!shared.has(storage)) storage.refs = storage.retains + 1;
  }
}
