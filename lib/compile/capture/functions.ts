/**
 * Calls that a graph repeats as they are: `autograd.Function`, and the passing of modules' tensors
 * through nodes with hooks. The function runs at the capture for the metadata of its results.
 */
import type { Applicable } from '../../core/backend.js';
import { cpu } from '../../core/device.js';
import { float32 } from '../../core/dtype.js';
import { Tensor, wrapNumber } from '../../core/tensor.js';
import { map as mapTensors, tensors as tensorsIn } from '../../core/tree.js';
import { metaOf } from '../graph/node.js';
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
  const result = recorder.unrecorded(fn.name, run);
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
