/**
 * Records a whole train step as one graph of local ops: the function runs once on borrowed tensors,
 * and so does the engine. Also runs such graphs.
 */
import { endingPasses } from '../../autograd/backward-callbacks.js';
import { noGrad } from '../../autograd/grad-mode.js';
import { scope } from '../../core/scope.js';
import { heldOf, type Sharding } from '../../core/sharding.js';
import type { Tensor } from '../../core/tensor.js';
import { tensors as tensorsIn } from '../../core/tree.js';
import { capturing, checkResult } from '../capture/capture.js';
import { recording } from '../capture/levels.js';
import type { Recorder } from '../capture/recorder.js';
import type { RunValue } from '../graph/effects.js';
import { eliminateDeadCode } from '../graph/eliminate.js';
import type { Value } from '../graph/node.js';
import type { GuardCollector } from '../guards/guard-collector.js';
import { borrowDistributed, type Distribute } from './distribute.js';
import { keepLastGradients, ownGradients, type StepGradient } from './gradients.js';
import { liftConstants, type StepInput } from './lifts.js';
import { textsOfMade } from './made-values.js';
import { StepNames } from './names.js';

/** Runs a graph of a step: one value for each of its inputs, one for each of its results. */
export type StepRunner = (...values: readonly RunValue[]) => readonly RunValue[];

/** Where a tensor of the step's result comes from. */
export type Source =
  | { readonly argument: number }
  | { readonly tensor: Tensor }
  | { readonly result: number; readonly sharding: Sharding | null };

/** What was recorded of a step, beside the graph. */
export interface RecordedStep<R = unknown> {
  /** What each input of the graph is. */
  readonly inputs: readonly StepInput[];
  readonly gradients: readonly StepGradient[];
  /** What the function returned, with tensors of the capture. */
  readonly result: R;
  /** Where each tensor of it comes from. */
  readonly sources: readonly Source[];
  /** What the step makes and takes for equal on all ranks, see {@link textsOfMade}. */
  readonly made: readonly string[];
}

/** Records a step, whose function `call` runs. `tensors`: those of its arguments. */
export function recordStep<R>(
  recorder: Recorder,
  tensors: readonly Tensor[],
  distribute: ReadonlyMap<Tensor, Distribute>,
  call: () => R,
): RecordedStep<R> {
  const recorded = capturing(recorder, () =>
    recording(recorder, () => {
      borrowAll(recorder, tensors, distribute);
      return finished(call(), recorder, tensors);
    }),
  );
  const { guards } = recorder;
  expectHooks(guards, tensors, recorded.gradients);
  const made = textsOfMade(recorder);
  return { ...recorded, made, inputs: liftConstants(recorder, new StepNames(guards)) };
}

/** Runs the graph of a step, and assigns gradients. `tensors`: those of the arguments. */
export function runStep(
  { inputs, gradients }: Pick<RecordedStep, 'inputs' | 'gradients'>,
  runner: StepRunner,
  tensors: readonly Tensor[],
): readonly RunValue[] {
  const values = valuesOf(inputs, tensors);
  const made = endingPasses(() => noGrad(() => scope(() => runner(...values))));
  ownGradients(gradients, [...values, ...made]);
  return made;
}

/** The values of the graph's inputs for tensors of the arguments. */
export const valuesOf = (inputs: readonly StepInput[], tensors: readonly Tensor[]): RunValue[] =>
  inputs.map(({ argument, tensor, isWhole }) => {
    const t = (argument >= 0 ? tensors[argument] : tensor) as Tensor;
    return isWhole ? t : heldOf(t);
  });

/** A tensor of the result. `values`: the results of the graph. */
export function tensorOf(
  source: Source,
  values: readonly RunValue[],
  tensors: readonly Tensor[],
): Tensor {
  if ('argument' in source) return tensors[source.argument] as Tensor;
  if ('tensor' in source) return source.tensor;
  const local = values[source.result] as Tensor;
  return source.sharding === null ? local : source.sharding.withLocal(local);
}

/** Borrows the arguments, and the tensors that are distributed for the capture. */
function borrowAll(
  recorder: Recorder,
  inputs: readonly Tensor[],
  distribute: ReadonlyMap<Tensor, Distribute>,
): void {
  inputs.forEach((t, i) => {
    const make = distribute.get(t);
    if (make === undefined) {
      recorder.borrowed.borrow(t);
      recorder.placeholder(heldOf(t), i);
    } else borrowDistributed(recorder, t, make, (local) => recorder.placeholder(local, i));
  });
  for (const [t, make] of distribute) {
    if (recorder.distributed.has(t)) continue;
    recorder.guards.addConstant(t);
    borrowDistributed(recorder, t, make, (local) => recorder.constant(local));
  }
}

/** Hooks of leaves ran at the capture, so their leaves must keep them. */
function expectHooks(
  guards: GuardCollector,
  inputs: readonly Tensor[],
  gradients: readonly StepGradient[],
): void {
  inputs.forEach((t, i) => {
    if (t.leafRequiresGrad) guards.expectHooks(i);
  });
  for (const t of new Set([...guards.constantTensors, ...gradients.map(({ owner }) => owner)]))
    if (t.leafRequiresGrad && !inputs.includes(t)) guards.expectHooks(t);
}

/** What must be read of a capture before the tensors get their memory back. */
function finished<R>(
  result: R,
  recorder: Recorder,
  inputs: readonly Tensor[],
): Omit<RecordedStep<R>, 'inputs' | 'made'> {
  const { graph, guards } = recorder;
  const changed = guards.changed();
  if (changed !== undefined) recorder.unsupported(`${changed} was changed`);
  checkResult(result, recorder);
  const outputs: Value[] = [];
  const sources = tensorsIn(result).map((t): Source => {
    const argument = inputs.indexOf(t);
    if (argument >= 0) return { argument };
    if (recorder.isBorrowed(t)) return { tensor: t };
    outputs.push(recorder.resultOf(heldOf(t)));
    return { result: outputs.length - 1, sharding: t.sharding };
  });
  graph.title = 'the graph of a train step';
  graph.outputs = outputs;
  const gradients = keepLastGradients(recorder);
  eliminateDeadCode(graph);
  return { gradients, result, sources };
}
