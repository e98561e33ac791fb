/**
 * A lowered function at run time: runs the forward graph on local tensors, puts the results
 * together, and records one node of the tape whose backward runs the backward graph.
 */
import { edgeOf } from '../../autograd/accumulate-grad.js';
import { setGradEnabled } from '../../autograd/grad-mode.js';
import { changeHistory, type Edge, keepGradient } from '../../autograd/node.js';
import { markAsynchronous } from '../../core/asynchronous.js';
import { scope } from '../../core/scope.js';
import { heldOf } from '../../core/sharding.js';
import { Tensor } from '../../core/tensor.js';
import type { RunValue } from '../graph/effects.js';
import type { Node } from '../graph/node.js';
import { replayViews } from './aliases.js';
import type { BackwardPasses } from './backward-passes.js';
import { CompiledNode } from './compiled-node.js';
import type { JointTrace, Root, VersionChanges } from './joint-trace.js';
import type { LeafSource, OutputSource } from './output-sources.js';
import type { Replay } from './replayed-inputs.js';

/** Runs a lowered graph. Inputs and results are local tensors, and random states of draws. */
export type LoweredFunction = (...inputs: readonly RunValue[]) => readonly RunValue[];

/** What a compiled function runs. @internal */
export interface LoweredFunctions {
  readonly trace: JointTrace;
  readonly places: OutputPlaces;
  /** The name of the function, and where it was called first, for errors. */
  readonly name: string;
  readonly site: string;
  readonly forward: LoweredFunction;
  /** Null if nothing has a gradient. */
  readonly backward: BackwardPasses | null;
  /** Whether several passes from single results add up to one from all. */
  readonly separable: boolean;
  /** What runs again for second derivatives; null if the function must not. */
  readonly replay: Replay | null;
  /** For each saved value, the primal that it is; -1 for others. */
  readonly savedPrimals: readonly number[];
  /** Whether it is a distributed tensor, and not the local shard of one. */
  readonly savesWhole: readonly boolean[];
}

/** An output that a run makes as a view. @internal */
export interface ViewPlace {
  readonly output: number;
  /** The output that it is made of; -1 for an input, or a result that is none of the outputs. */
  readonly from: number;
  /** The views, in order. */
  readonly steps: readonly Node[];
  /** Its position among the views with a history; -1 if it has none. */
  readonly index: number;
}

/** Where results of a function are, looked up once. @internal */
export interface OutputPlaces {
  /** For each output, the first one that is the same object. */
  readonly first: readonly number[];
  /** The outputs that are views of inputs, or of other results: each behind those it is made of. */
  readonly views: readonly ViewPlace[];
  /** For each root, the output that it is; -1 for a primal. */
  readonly roots: readonly number[];
  /** For each gradient, the output that is its leaf; -1 for a primal. */
  readonly leaves: readonly number[];
  /** Whether a run ends with more than its results. */
  readonly hasEpilogue: boolean;
}

/** @internal */
export function placesOf(trace: JointTrace): OutputPlaces {
  const { outputs, roots, gradients, retained, attributes } = trace;
  return {
    first: outputs.map((source) => outputs.indexOf(source)),
    views: viewPlaces(trace),
    roots: roots.map(({ source }) => (source.kind === 'primal' ? -1 : outputs.indexOf(source))),
    leaves: gradients.map(({ of }) => (typeof of === 'number' ? -1 : outputs.indexOf(of))),
    hasEpilogue: retained.length > 0 || attributes.length > 0,
  };
}

/** Views of views follow those that they are made of, so that gradients pass through these. */
function viewPlaces({ outputs, views }: JointTrace): ViewPlace[] {
  const chains = [...new Set(outputs)]
    .flatMap((source) => chainOf(source) ?? [])
    .sort((a, b) => a.steps.length - b.steps.length);
  return chains.map(({ source, root, steps }, k) => {
    const isPart = (of: (typeof chains)[0]): boolean =>
      of.root === root && of.steps.every((step, i) => step === steps[i]);
    const shorter = chains.slice(0, k).findLast(isPart);
    return {
      output: outputs.indexOf(source),
      from: shorter === undefined ? -1 : outputs.indexOf(shorter.source),
      steps: steps.slice(shorter?.steps.length ?? 0),
      index: views.indexOf(source),
    };
  });
}

/** The views that an output is made by, and what they begin at; null for one that is no view. */
function chainOf(source: OutputSource) {
  if (source.kind === 'alias') return { source, root: `result ${source.at}`, steps: source.steps };
  if (source.kind !== 'view') return null;
  return { source, root: `primal ${source.view.index}`, steps: source.view.steps };
}

const OUTPUT_SHARES_MEMORY =
  'it is a result of a compiled function that shares memory with another result; clone() it first';

/** Runs the function on all primals: the inputs of the front graph and its constants. */
export function runCompiled(fns: LoweredFunctions, primals: readonly RunValue[]): Tensor[] {
  const { trace, places, forward, backward } = fns;
  const locals = inputsOf(trace, primals);
  const before = versionsOf(trace.versions, primals);
  const values = withoutGrad(forward, locals);
  for (const i of trace.waited) markAsynchronous(localOf(primals[i] as Tensor) as Tensor, false);
  if (before !== null) countChanges(trace.versions, primals, before);
  const { outputs, outputCount } = trace;
  const { first } = places;
  const results = new Array<Tensor>(outputs.length);
  for (let i = 0; i < outputs.length; i++) {
    const at = first[i] as number;
    results[i] =
      at < i ? (results[at] as Tensor) : resultOf(outputs[i] as OutputSource, values, primals);
  }
  const node = backward === null ? null : recordNode(fns, primals, values, results);
  if (places.views.length > 0) makeViews(fns, results, node);
  if (places.hasEpilogue) finish(trace, primals, results);
  results.length = outputCount;
  return results;
}

/** Makes the views among the results when their bases have their new histories. */
function makeViews(
  { places }: LoweredFunctions,
  results: Tensor[],
  node: CompiledNode | null,
): void {
  const { first, views } = places;
  for (const { output, from, steps, index } of views) {
    const base = results[from < 0 ? output : from] as Tensor;
    const view = replayViews(base, steps);
    results[output] = view;
    if (index >= 0) node?.addView(index, view, steps.length);
  }
  // A view that is given twice is one object.
  for (let i = 0; i < results.length; i++) results[i] = results[first[i] as number] as Tensor;
}

/** Does what the lowered graph leaves to the end. */
function finish(
  { outputs, retained, attributes }: JointTrace,
  primals: readonly RunValue[],
  results: readonly Tensor[],
): void {
  const at = (source: OutputSource): Tensor => results[outputs.indexOf(source)] as Tensor;
  for (const source of retained) {
    const t = source.kind === 'primal' ? (primals[source.index] as Tensor) : at(source);
    keepGradient(edgeOf(t) as Edge, t);
  }
  for (const [{ module, name, value }, source] of attributes)
    (module as Record<string, unknown>)[name] = source === null ? value : at(source);
}

/** The versions of these primals; null for none. */
function versionsOf(
  versions: readonly VersionChanges[],
  primals: readonly RunValue[],
): readonly number[] | null {
  if (versions.length === 0) return null;
  return versions.map(({ primal }) => (primals[primal] as Tensor).currentVersion);
}

/** Counts what the function changes, whatever the lowered graph has counted. */
function countChanges(
  versions: readonly VersionChanges[],
  primals: readonly RunValue[],
  before: readonly number[],
): void {
  for (const [i, { primal, changes }] of versions.entries()) {
    const { versionCounter } = primals[primal] as Tensor;
    if (versionCounter !== null) versionCounter.value = (before[i] as number) + changes;
  }
}

/** Runs a lowered function, and frees what it makes beside its results. */
export const inScope =
  (forward: LoweredFunction): LoweredFunction =>
  (...locals) =>
    scope(() => forward(...locals));

function withoutGrad(run: LoweredFunction, locals: readonly RunValue[]): readonly RunValue[] {
  const before = setGradEnabled(false);
  try {
    return run(...locals);
  } finally {
    setGradEnabled(before);
  }
}

/** What the forward graph gets: local shards, and distributed tensors that effects need. */
export function inputsOf(
  { locals, wholes }: JointTrace,
  primals: readonly RunValue[],
): readonly RunValue[] {
  const inputs = new Array<RunValue>(locals.length + wholes.length);
  for (let i = 0; i < locals.length; i++)
    inputs[i] = localOf(primals[locals[i] as number] as RunValue);
  for (let i = 0; i < wholes.length; i++)
    inputs[locals.length + i] = primals[wholes[i] as number] as RunValue;
  return inputs;
}

/** The local shard of a distributed tensor. */
function localOf(value: RunValue): RunValue {
  return value instanceof Tensor ? heldOf(value) : value;
}

function resultOf(
  source: OutputSource,
  values: readonly RunValue[],
  primals: readonly RunValue[],
): Tensor {
  if (source.kind === 'primal') return primals[source.index] as Tensor;
  if (source.kind === 'view') return primals[source.view.index] as Tensor;
  if (source.kind === 'leaf') return leafOf(source, values, primals);
  if (source.kind === 'alias') return values[source.at] as Tensor;
  const local = values[source.at] as Tensor;
  local.base = null;
  if (source.isAsynchronous) markAsynchronous(local, true);
  const result = source.sharding === null ? local : source.sharding.withLocal(local);
  if (source.shared) result.inPlaceForbidden = OUTPUT_SHARES_MEMORY;
  return result;
}

/** A new leaf. It is there before the node that has an edge to it. */
function leafOf(
  { data, type, requiresGrad }: LeafSource,
  values: readonly RunValue[],
  primals: readonly RunValue[],
): Tensor {
  const base = resultOf(data, values, primals);
  const t = data.kind === 'view' ? replayViews(base, data.view.steps) : base;
  return type === null ? t.requiresGrad_(requiresGrad) : new type(t, requiresGrad);
}

function recordNode(
  fns: LoweredFunctions,
  primals: readonly RunValue[],
  values: readonly RunValue[],
  results: readonly Tensor[],
): CompiledNode {
  const { roots, joint } = fns.trace;
  const { leaves } = fns.places;
  const edges = fns.trace.gradients.map(({ of }, i) =>
    edgeOf((typeof of === 'number' ? primals[of] : results[leaves[i] as number]) as Tensor),
  );
  const node = new CompiledNode(fns, edges);
  for (let i = 0; i < roots.length; i++) {
    const { source } = roots[i] as Root;
    if (source.kind === 'primal') {
      const primal = primals[source.index] as Tensor;
      changeHistory(primal, node, i);
      primal.leafRequiresGrad = false;
    } else {
      const result = results[fns.places.roots[i] as number] as Tensor;
      result.node = node;
      result.outputNr = i;
    }
  }
  const returned = new Set<Tensor>();
  for (let i = 0; i < results.length; i++) returned.add(heldOf(results[i] as Tensor));
  node.save(values.slice(joint.forwardOutputs), primals, returned);
  // What the program keeps of changed inputs is all of their gradients.
  if (node.retained !== null && roots.length > 1) node.separate();
  return node;
}
