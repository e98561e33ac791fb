/**
 * A lowered function at run time: runs the forward graph on local tensors, puts the results
 * together, and records one node of the tape whose backward runs the backward graph.
 */
import { edgeOf } from '../../autograd/accumulate-grad.js';
import { isGradEnabled, setGradEnabled } from '../../autograd/grad-mode.js';
import { copyInLayoutOf, hasLayoutOf } from '../../autograd/gradient-layout.js';
import {
  alreadyReleased,
  changeHistory,
  type Edge,
  type Gradients,
  Node,
  type NodeFacts,
} from '../../autograd/node.js';
import { SavedTensor } from '../../autograd/saved-tensor.js';
import { markAsynchronous } from '../../core/asynchronous.js';
import { AutogradError } from '../../core/errors.js';
import { hooks, inRegion, layers } from '../../core/hooks.js';
import { scope } from '../../core/scope.js';
import { adopt } from '../../core/scope-stack.js';
import { heldOf } from '../../core/sharding.js';
import type { Storage } from '../../core/storage.js';
import { Tensor } from '../../core/tensor.js';
import { zeros } from '../../ops/factories.js';
import { isDraw, type RunValue } from '../graph/effects.js';
import { immediately } from '../lazy/lazily.js';
import { replayViews } from './aliases.js';
import type { JointTrace, PrimalGradient, Root, VersionChanges } from './joint.js';
import type { LeafSource, OutputSource } from './output-sources.js';

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
  /**
   * Null if nothing has a gradient. With `donates`, what runs the graph overwrites and frees the
   * donated values.
   */
  readonly backward: ((donates: boolean) => LoweredFunction) | null;
  /** The same, op by op, made when a capture first asks for it. */
  readonly backwardGraph: () => LoweredFunction;
  /** For each saved value, the primal that it is; -1 for others. */
  readonly savedPrimals: readonly number[];
  /** Whether it is a distributed tensor, and not the local shard of one. */
  readonly savesWhole: readonly boolean[];
  /** The positions of saved values that nobody else needs after a backward pass. */
  readonly donated: readonly number[];
}

/** Where results of a function are, looked up once. @internal */
export interface OutputPlaces {
  /** For each output, the first one that is the same object. */
  readonly first: readonly number[];
  /** The outputs that are views of inputs, or of other results. */
  readonly views: readonly number[];
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
    views: outputs.flatMap(({ kind }, i) => (kind === 'view' || kind === 'alias' ? [i] : [])),
    roots: roots.map(({ source }) => (source.kind === 'primal' ? -1 : outputs.indexOf(source))),
    leaves: gradients.map(({ of }) => (typeof of === 'number' ? -1 : outputs.indexOf(of))),
    hasEpilogue: retained.length > 0 || attributes.length > 0,
  };
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
  const { first, views } = places;
  const results = new Array<Tensor>(outputs.length);
  for (let i = 0; i < outputs.length; i++) {
    const at = first[i] as number;
    results[i] =
      at < i ? (results[at] as Tensor) : resultOf(outputs[i] as OutputSource, values, primals);
  }
  if (backward !== null) recordNode(fns, primals, values, results);
  // Views are made when their base has its new history; a view that is given twice is one object.
  for (let k = 0; k < views.length; k++) {
    const i = views[k] as number;
    const at = first[i] as number;
    results[i] =
      at < i ? (results[at] as Tensor) : viewOf(outputs[i] as OutputSource, values, primals);
  }
  if (places.hasEpilogue) finish(trace, primals, results);
  results.length = outputCount;
  return results;
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
    (t as Tensor & { retainGrad(): void }).retainGrad();
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

function viewOf(
  source: OutputSource,
  values: readonly RunValue[],
  primals: readonly RunValue[],
): Tensor {
  if (source.kind === 'alias') return replayViews(values[source.at] as Tensor, source.steps);
  const { index, steps } = (source as OutputSource & { kind: 'view' }).view;
  return replayViews(primals[index] as Tensor, steps);
}

/** A new leaf. It is there before the node that has an edge to it. */
function leafOf(
  { data, type, requiresGrad }: LeafSource,
  values: readonly RunValue[],
  primals: readonly RunValue[],
): Tensor {
  const t = data.kind === 'view' ? viewOf(data, values, primals) : resultOf(data, values, primals);
  return type === null ? t.requiresGrad_(requiresGrad) : new type(t, requiresGrad);
}

function recordNode(
  fns: LoweredFunctions,
  primals: readonly RunValue[],
  values: readonly RunValue[],
  results: readonly Tensor[],
): void {
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
}

/** The node of a compiled function on the tape. */
class CompiledNode extends Node {
  readonly name = 'CompiledFunction';
  private readonly fns: LoweredFunctions;
  private saved: readonly (SavedTensor | RunValue)[] = [];
  private released = false;

  constructor(fns: LoweredFunctions, edges: (Edge | null)[]) {
    super(fns.trace.roots.length, edges);
    this.fns = fns;
  }

  /** Inputs are saved by reference, as by eager ops; other values as results of this node. */
  save(
    values: readonly RunValue[],
    primals: readonly RunValue[],
    returned: ReadonlySet<Tensor>,
  ): void {
    this.saved = values.map((value, i) => {
      if (!(value instanceof Tensor)) return value;
      const primal = this.fns.savedPrimals[i] as number;
      if (primal >= 0) return new SavedTensor(primals[primal] as Tensor, null);
      const isOwn = this.fns.donated.includes(i) || returned.has(value);
      return new SavedTensor(value, isOwn ? this : null, false);
    });
  }

  /** Takes the donated values for this pass; false if it, or somebody else, needs one of them. */
  private donates(): boolean {
    const { task, saved } = this;
    const { donated } = this.fns;
    if (donated.length === 0 || layers.backend.capture !== null) return false;
    if (task === null || !task.releases || task.outer !== null) return false;
    const taken: Tensor[] = [];
    for (let k = 0; k < donated.length; k++) {
      const t = (saved[donated[k] as number] as SavedTensor).take();
      if (t === null) return false;
      taken.push(t);
    }
    for (const { storage } of taken) adopt(storage as Storage);
    return true;
  }

  apply(grads: Gradients): Gradients {
    if (this.released) throw alreadyReleased(this.name);
    if (isGradEnabled()) throw noSecondDerivative(this.fns);
    const { trace, backward, backwardGraph, savesWhole } = this.fns;
    const donates = this.donates();
    const saved = this.saved.map((value, i) => {
      if (!(value instanceof SavedTensor)) return value;
      const t = value.unpack(this.name, `saved value ${i}`, this, false);
      return savesWhole[i] ? t : heldOf(t);
    });
    const tangents = trace.roots.map((root, i) => tangentOf(root, grads[i] ?? null));
    // A capture records the ops of the graph, whatever a compiler has made of it.
    const run = layers.backend.capture === null ? backward?.(donates) : backwardGraph();
    if (donates) this.released = true;
    const runNow = (): readonly RunValue[] =>
      immediately(() => (run as LoweredFunction)(...saved, ...tangents));
    const values =
      hooks.profiler === null
        ? runNow()
        : inRegion('compiled', `${this.fns.name} backward`, runNow);
    return trace.gradients.map((gradient) => gradientOf(gradient, values));
  }

  override facts(): NodeFacts | null {
    if (this.released) return null;
    return {
      facts: [this.fns],
      saved: this.saved.filter((value) => value instanceof SavedTensor),
      draws: this.saved.filter((value) => isDraw(value)),
    };
  }

  override release(): void {
    this.released = true;
    for (const value of this.saved) if (value instanceof SavedTensor) value.release();
    this.saved = [];
  }
}

function noSecondDerivative({ name, site }: LoweredFunctions): AutogradError {
  const called = site === '' ? '' : ` and first called at ${site}`;
  return new AutogradError(
    `backward: expected createGraph to be false, because ${name}, which is compiled${called}, ` +
      "has no second derivative. Use backend 'eager', or leave the function uncompiled.",
    { op: 'CompiledFunction', function: name, at: site },
  );
}

/** The local tangent as the backward graph expects it. */
function tangentOf({ like, sharding }: Root, grad: Tensor | null): Tensor {
  if (grad === null) return zerosLike(like);
  const local = sharding === null ? grad : heldOf(sharding.fit(grad));
  return hasLayoutOf(like, local) ? local : copyInLayoutOf(like, local);
}

function zerosLike(like: Tensor): Tensor {
  return copyInLayoutOf(like, zeros(like.sizes, { dtype: like.dtype, device: like.device }));
}

function gradientOf({ at, sharding }: PrimalGradient, values: readonly RunValue[]): Tensor | null {
  if (at < 0) return null;
  const local = values[at] as Tensor;
  return sharding === null ? local : sharding.withLocal(local);
}
