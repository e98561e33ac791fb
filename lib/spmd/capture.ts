/**
 * Captures train steps for several ranks, and says what is wrong with a step that trains nothing.
 */

import { Dependencies } from '../compile/graph/dependencies.js';
import type { Graph } from '../compile/graph/graph.js';
import { type CapturedStep, captureStepOf } from '../compile/step/capture-step.js';
import type { Distribute } from '../compile/step/distribute.js';
import { CompileError, ShardingError } from '../core/errors.js';
import type { Tensor } from '../core/tensor.js';
import { mergeEqualCollectives } from './merge-collectives.js';
import { listed, namesOf, parameterNames, type StepArguments } from './step-arguments.js';

const CLOSED_OVER =
  'Models, buffers and other tensors that the step closes over are plain: pass the model, its ' +
  'optimizer and the batch as arguments of the step.';

/** A train step, and how it is captured. */
export interface StepCapture {
  /** The call that captures it, for errors. */
  readonly caller: string;
  readonly fn: (...args: readonly unknown[]) => unknown;
  readonly args: readonly unknown[];
  /** The parts of the arguments. */
  readonly found: StepArguments;
  readonly distribute: ReadonlyMap<Tensor, Distribute>;
}

/**
 * Captures a step, with equal collectives as one.
 *
 * @throws CompileError for what a graph cannot repeat, and for an optimizer that takes no step;
 * ShardingError that names plain tensors which the step closes over or draws
 */
export function captureDistributed(capture: StepCapture): CapturedStep {
  const { caller, fn, args, found, distribute } = capture;
  try {
    const captured = captureStepOf(caller, fn, args, distribute);
    checkOptimizers(caller, captured, found);
    mergeEqualCollectives(captured.graph);
    return captured;
  } catch (error) {
    if (!(error instanceof ShardingError) || !('plain' in error.details)) throw error;
    const { details } = error;
    const advice = details['origin'] === 'other' ? `\n  ${CLOSED_OVER}` : '';
    const message = `${caller}: ${error.message}${advice}`;
    throw new ShardingError(message, details, { cause: error });
  }
}

/** @throws CompileError for an optimizer whose parameters the graph does not write */
function checkOptimizers(
  caller: string,
  captured: CapturedStep,
  { optimizers }: StepArguments,
): void {
  const written = writtenTensors(captured.graph, captured);
  for (const optimizer of optimizers) {
    const params = optimizer.paramGroups.flatMap((group) => [...group.params]);
    const trained = params.filter((p) => p.requiresGrad);
    if (trained.length === 0 || trained.some((p) => written.has(p))) continue;
    throw new CompileError(
      `${caller}: ${optimizer.constructor.name} is an argument of the step, and the step does ` +
        'not call its step(), or no parameter of it has a gradient.',
      { optimizer: optimizer.constructor.name },
    );
  }
}

/**
 * The names of the parameters for which a step without optimizers computes gradients, and which it
 * does not change.
 */
export function untrainedNames(captured: CapturedStep, found: StepArguments): string | null {
  if (found.optimizers.length > 0) return null;
  const names = parameterNames(found);
  const written = writtenTensors(captured.graph, captured);
  const owners = new Set(
    captured.gradients.flatMap(({ owner, value }) => (value === null ? [] : [owner])),
  );
  const untrained = [...names.keys()].filter((p) => owners.has(p) && !written.has(p));
  return untrained.length === 0 ? null : listed(namesOf(untrained, names));
}

function writtenTensors(graph: Graph, { inputs }: CapturedStep): Set<Tensor> {
  const dependencies = new Dependencies(graph);
  const written = new Set(graph.nodes.flatMap((node) => [...dependencies.writtenBy(node)]));
  return new Set(
    inputs.flatMap(({ node, tensor }) =>
      tensor !== null && written.has(dependencies.memoryOf({ node, output: 0 })) ? [tensor] : [],
    ),
  );
}
