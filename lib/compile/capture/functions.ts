/**
 * Calls that a graph repeats as they are: `autograd.Function`, and the passing of modules' tensors
 * through nodes with hooks. The function runs at the capture for the metadata of its results.
 */
import type { Applicable } from '../../core/backend.js';
import { cpu } from '../../core/device.js';
import { float32 } from '../../core/dtype.js';
import { Tensor, wrapNumber } from '../../core/tensor.js';
import { map as mapTensors, tensors as tensorsIn } from '../../core/tree.js';
import { metaOf, type Node } from '../graph/node.js';
import { Walk } from '../guards/object-walk.js';
import type { Recorder } from './recorder.js';

/** Marks the place of a tensor. */
export const PLACE = wrapNumber(0, float32, cpu);

/**
 * Runs a call, and records it as one node that applies the function again to the arguments, with
 * the tensors of the run in their places.
 */
export function recordCall<R extends Tensor | readonly Tensor[]>(
  recorder: Recorder,
  fn: Applicable,
  args: readonly unknown[],
  run: () => R,
): R {
  const tensors = tensorsIn(args);
  refuseHiddenTensors(recorder, fn, args, new Set(tensors));
  const operands = tensors.map((t) => recorder.valueOf(t));
  const template = mapTensors(() => PLACE, args) as readonly unknown[];
  recorder.attributes.record(recorder);
  const result = unrecorded(recorder, fn.name, run);
  recorder.attributes.accept(recorder);
  const outputs = Array.isArray(result) ? (result as readonly Tensor[]) : [result as Tensor];
  const node = recorder.addEffect('applyFunction', {
    inputs: operands,
    params: { name: fn.name, function: fn, template, outputs: outputs.length },
    metas: outputs.map(metaOf),
  });
  outputs.forEach((t, output) => {
    recorder.define(t, { node, output });
  });
  return result;
}

/**
 * Runs `fn` and removes the nodes that it added, except reads of unchanged state: one node of the
 * graph repeats all of it. `name` is that of the node.
 */
function unrecorded<T>(recorder: Recorder, name: string, fn: () => T): T {
  const { nodes } = recorder.graph;
  const start = nodes.length;
  let result: T;
  recorder.unrecordedCalls++;
  try {
    result = fn();
  } catch (error) {
    recorder.failedCall = name;
    throw error;
  } finally {
    recorder.unrecordedCalls--;
  }
  const removed = new Set<Node>();
  for (const node of nodes.splice(start)) {
    const keeps =
      node.kind === 'constant' ||
      node.kind === 'placeholder' ||
      (node.effect === 'readGrad' && node.inputs.every((v) => 'node' in v && !removed.has(v.node)));
    if (keeps) nodes.push(node);
    else removed.add(node);
  }
  recorder.known.forget(removed);
  recorder.draws.forget(removed);
  return result;
}

/** A run replaces the tensors in arrays, objects and maps only. */
function refuseHiddenTensors(
  recorder: Recorder,
  { name }: Applicable,
  args: readonly unknown[],
  found: ReadonlySet<Tensor>,
): void {
  new Walk((item) => {
    if (item instanceof Tensor && !found.has(item) && recorder.changesWithCalls(item))
      recorder.unsupported(`${name} got a tensor inside a Set or an instance of a class`);
    return true;
  }).value(args);
}
