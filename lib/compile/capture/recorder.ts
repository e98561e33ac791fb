/**
 * Records ops and effects as nodes of a graph, and knows the value of every tensor. Tensors of the
 * program are borrowed when an op meets them. What a graph cannot repeat ends the capture.
 */
import { type GradMode, gradMode } from '../../autograd/grad-mode.js';
import { aliasOf } from '../../core/alias-of.js';
import { isAsynchronous } from '../../core/asynchronous.js';
import type { MemoryFact } from '../../core/backend.js';
import type { CompileError } from '../../core/errors.js';
import type { AnyOp } from '../../core/op.js';
import type { DrawParams } from '../../core/random.js';
import { heldOf, type Sharding } from '../../core/sharding.js';
import type { Storage } from '../../core/storage.js';
import type { Tensor } from '../../core/tensor.js';
import { detachOp } from '../../ops/view.js';
import type { EffectName } from '../graph/effects.js';
import { Graph } from '../graph/graph.js';
import { replayed } from '../graph/graph-module.js';
import { metaOf, type Node, type NodeFields, type NodeOrigin, type Value } from '../graph/node.js';
import type { GuardCollector } from '../guards/guard-collector.js';
import { BACKWARD } from '../partition/joint-graph.js';
import { AttributeWrites } from './attributes.js';
import { Borrowed } from './borrowed.js';
import { define as distribute, WholeInputs } from './distributed.js';
import { Draws } from './draws.js';
import { Epilogue } from './epilogue.js';
import type { PendingHook } from './hooks.js';
import { KnownTensors } from './known-tensors.js';
import { recordOpFacts } from './op-facts.js';
import { Origins } from './origins.js';
import { cancelled, refusal } from './refusals.js';
import { Regions } from './regions.js';
import { Sites } from './sites.js';
import { VersionReads } from './versions.js';
import { Waits } from './waits.js';

/**
 * `front`: calls as the program makes them, for a run through autograd. `backward`: the same for a
 * backward pass, whose history nobody needs. `lowered`: what reaches the backend.
 */
export type RecordLevel = 'front' | 'backward' | 'lowered';

export class Recorder {
  readonly graph = new Graph();
  /** The first effect that could not be recorded. It fails the capture even if `fn` catches it. */
  broken: CompileError | null = null;
  /** The call that threw an error, which a run would not repeat. */
  failedCall: string | null = null;
  readonly guards: GuardCollector;
  /** The tags of the nodes that are recorded next. */
  tags: ReadonlySet<string> = new Set();
  /** The parameters that the function made. */
  readonly parameters = new Set<Tensor>();
  /** The tensors whose `.grad` the function assigned. */
  readonly assignedGrads = new Set<Tensor>();
  /** The memory that gradients have taken over. */
  readonly taken = new Set<Storage>();
  /** The hooks of a backward pass that its graph calls. */
  calls: readonly (() => void)[] = [];
  /** Whether the body of a hook is recorded. */
  readonly isHookBody: boolean = false;
  /** The running calls that a run repeats as a whole. */
  unrecordedCalls = 0;
  /** The call that captures a whole train step; null for other captures. */
  stepCaller: string | null = null;
  /** The backward pass that runs, and whether the graph has its begin. */
  pass: { isOpen: boolean } | null = null;
  /** Plain tensors that are distributed for the capture, with what stands for their memory. */
  readonly distributed = new Map<Tensor, Tensor>();
  /** Runs a function as if there were no capture. */
  outside: <T>(fn: () => T) => T = (fn) => fn();
  /** Ends the capture when it is aborted. */
  signal: AbortSignal | null = null;
  /** The tensors of the program that the capture uses. */
  readonly borrowed = new Borrowed();
  readonly attributes = new AttributeWrites();
  /** What a lowered graph leaves to the end of a run. */
  readonly epilogue = new Epilogue();
  /** The versions that the function reads. */
  readonly versions: VersionReads;
  private readonly outerMode: GradMode = gradMode();
  readonly known = new KnownTensors();
  readonly origins = new Origins();
  /** Positions of the inputs. */
  private readonly inputs = new Map<Tensor, number>();
  /** Hooks whose bodies are traced at the end. */
  readonly pendingHooks = new Set<PendingHook>();
  readonly draws: Draws;
  /** The parts of the graph that backward computes again. */
  readonly regions = new Regions();
  private readonly sites = new Sites();
  private readonly waits = new Waits();
  /** The distributed tensors that are inputs of a lowered graph. */
  readonly wholes = new WholeInputs();
  readonly level: RecordLevel;

  constructor(
    guards: GuardCollector,
    level: RecordLevel = 'front',
    draws = new Draws(),
    versions = new VersionReads(),
  ) {
    this.guards = guards;
    this.level = level;
    this.versions = versions;
    this.draws = draws;
  }

  /**
   * Borrows an input. One that is given twice has the value of its first place. A plain number has
   * no metadata.
   */
  placeholder(t: Tensor, position: number, name = 'arg'): Node {
    const first = !this.inputs.has(t);
    if (first) this.inputs.set(t, position);
    const metas = t.storage === null ? [] : [metaOf(t)];
    const node = this.graph.add({ kind: 'placeholder', name, metas });
    if (!first) return node;
    this.borrowed.borrow(t);
    this.define(t, { node, output: 0 });
    if (this.level === 'lowered' && isAsynchronous(t)) this.waits.add([t]);
    return node;
  }

  /** Makes a random state an input: calls that use it read it from there. */
  drawPlaceholder(draw: DrawParams): Node {
    const node = this.graph.add({ kind: 'placeholder', name: 'draw' });
    this.draws.define(draw, node);
    return node;
  }

  /** Adds a call whose results are known, and defines them. */
  record(
    op: AnyOp,
    inputs: readonly Tensor[],
    params: object,
    into: Tensor | null,
    outputs: readonly Tensor[],
    operands: readonly Value[] = inputs.map((t) => this.valueOf(t)),
  ): Node {
    if (this.signal?.aborted) throw (this.broken ??= cancelled(this.signal));
    const node = this.graph.add({
      kind: 'call',
      name: op.name,
      op,
      inputs: operands,
      params,
      into: into === null ? null : this.valueOf(into),
      metas: outputs.map(metaOf),
      draw: this.draws.nodeOf(this, op, params, this.tagsNow()),
      ...this.context(),
    });
    recordOpFacts(this, node, inputs, into, outputs);
    for (let i = 0; i < outputs.length; i++)
      if (outputs[i] !== into) this.define(outputs[i] as Tensor, { node, output: i });
    if (this.level === 'lowered' && op.traits.includes('collective')) this.waits.add(outputs);
    return node;
  }

  /** Adds an effect on tensors, which a run repeats on the real ones. */
  effect(
    name: EffectName,
    tensors: readonly Tensor[],
    params: object = {},
    more: readonly Value[] = [],
  ): Node {
    return this.graph.add({
      kind: 'effect',
      name,
      effect: name,
      inputs: [...tensors.map((t) => this.valueOf(t)), ...more],
      params,
      ...this.context(),
    });
  }

  /** Adds an effect whose operands are known. */
  addEffect(name: EffectName, fields: Pick<NodeFields, 'inputs' | 'params' | 'metas'>): Node {
    return this.graph.add({ kind: 'effect', name, effect: name, ...fields, ...this.context() });
  }

  /**
   * Whether calls that the program makes beside ops become nodes: not below autograd, and not
   * inside of one that does.
   */
  get repeatsCalls(): boolean {
    return this.level === 'front' && this.recordsEffects;
  }

  /** Whether a whole train step is captured: backward passes are part of the graph. */
  get isWholeStep(): boolean {
    return this.stepCaller !== null;
  }

  /** Whether each run of the graph ends with what the graph leaves to it. */
  get hasEpilogue(): boolean {
    return this.level === 'lowered' && !this.isWholeStep;
  }

  /** Whether the backward half of a joint graph is recorded. */
  get inBackward(): boolean {
    return this.tags.has(BACKWARD);
  }

  /** Whether effects are recorded: not those of a call that a run repeats as a whole. */
  get recordsEffects(): boolean {
    return this.unrecordedCalls === 0;
  }

  /** Whether a tensor is another one at another call: an input, or one that a run computes. */
  changesWithCalls(t: Tensor): boolean {
    return this.inputs.has(t) || this.isOwn(t);
  }

  /**
   * Fails the capture. `instead`: what the program can do outside of the function. @throws
   * CompileError that says what cannot be recorded, and where
   */
  unsupported(what: string, instead?: string, place: NodeOrigin = this.place()): never {
    this.broken ??= refusal(what, place.site, place.path, this.stepCaller, instead);
    throw this.broken;
  }

  /** Where the program is. */
  place(): NodeOrigin {
    return this.sites.find(this.level === 'backward' || this.inBackward);
  }

  /**
   * Reads `.grad`: null stays a fact that guards compare; a gradient becomes a value that each run
   * reads anew.
   */
  readsGrad(t: Tensor): void {
    if (this.isOwn(t)) return;
    if (this.inBackward) this.unsupported('the .grad of a tensor was read in backward');
    if (this.assignedGrads.has(t)) return;
    this.valueOf(this.distributed.has(t) ? heldOf(t) : t); // borrows t, and hides its gradient
    if (t.gradTensor !== null) return;
    const grad = this.borrowed.gradOf(t);
    this.guards.expectGrad(this.inputs.get(t) ?? t, grad);
    if (grad === null) return;
    if (this.known.get(grad) === undefined) {
      this.borrowed.borrow(grad);
      if (this.distributed.has(t)) {
        this.readsDistributedGrad(t, aliasOf(grad));
        return;
      }
      this.define(grad, { node: this.effectOn('readGrad', t, grad), output: 0 });
      if (this.level === 'lowered') this.valueOf(heldOf(grad));
    }
    t.gradTensor = grad;
  }

  private readsDistributedGrad(t: Tensor, local: Tensor): void {
    this.define(local, { node: this.effectOn('readGrad', heldOf(t), local), output: 0 });
    t.gradTensor = (t.sharding as Sharding).gradient(local);
  }

  /** Reads whether a tensor that no op has used yet has a history: guards compare that. */
  readsHistory(t: Tensor): void {
    if (this.level !== 'front' || t.storage === null || this.isOwn(t) || this.known.has(t)) return;
    this.guards.expectHistory(t);
  }

  /** Reads a fact of a tensor's memory; guards compare it for all tensors of the program on it. */
  readsMemory(t: Tensor, fact: MemoryFact): void {
    if (t.storage === null) return;
    this.valueOf(t);
    for (const owner of this.borrowed.on(t.storage))
      this.guards.expectMemory(this.inputs.get(owner) ?? owner, fact);
  }

  /** A tensor on the storage, through which an effect on the storage is repeated. */
  tensorOn(storage: Storage): Tensor {
    const what = 'a storage was resized that the function did not use before';
    return this.known.tensorOn(storage) ?? this.unsupported(what);
  }

  /** The value of a tensor. One from outside is borrowed and becomes a constant. */
  valueOf(t: Tensor): Value {
    const known = this.known.get(t);
    if (t.storage === null) return known ?? { number: t };
    if (known !== undefined) return this.waits.use(this, t, known);
    if (t.sharding !== null && this.level === 'lowered')
      return this.wholes.valueOf(this, t, this.isOwn(t));
    if (this.isOwn(t)) return this.aliasValue(t);
    // The local shards of a whole step are inputs, so that passes see what is written.
    const whole = this.isWholeStep ? undefined : this.known.wholeOf(t);
    if (whole !== undefined) return this.localShardValue(whole, t);
    return this.outerValue(t);
  }

  /** Makes a tensor from outside a constant of the graph. */
  outerValue(t: Tensor): Value {
    this.guards.addConstant(t);
    this.constant(t);
    return this.known.get(t) as Value;
  }

  /** The value of a result, which the caller waits for if it is one of a collective. */
  resultOf(t: Tensor): Value {
    return this.waits.resultOf(this, t);
  }

  /** Borrows a tensor as a constant of the graph. */
  constant(t: Tensor): void {
    this.borrowed.borrow(t);
    const node = this.graph.add({
      kind: 'constant',
      name: 'const',
      metas: [metaOf(t)],
      tensor: t,
    });
    this.define(t, { node, output: 0 });
  }

  /** The position of an input; -1 for other tensors. */
  readonly positionOf = (t: Tensor): number => this.inputs.get(t) ?? -1;

  /** Whether the tensor is of the program, and not made by the capture. */
  readonly isBorrowed = (t: Tensor): boolean => this.borrowed.has(t);

  /** Whether the tensor is a constant of the graph. */
  isConstant(t: Tensor): boolean {
    const value = this.known.get(t);
    return value !== undefined && 'node' in value && value.node.kind === 'constant';
  }

  /** Gives borrowed tensors and generators their state back, and ends what the capture made. */
  restore(): void {
    this.borrowed.restore();
    this.draws.restore();
    this.known.end();
  }

  /**
   * Whether the capture made the memory of a tensor. Tensors on `meta` from outside are fake as
   * well.
   */
  isOwn(t: Tensor): boolean {
    return t.isFake && !this.borrowed.has(t) && (t.device.type !== 'meta' || this.known.has(t));
  }

  /** The value of a tensor that was made without the dispatcher on the memory of a known one. */
  private aliasValue(t: Tensor): Value {
    const whole = this.known.wholeOf(t);
    if (whole !== undefined) return this.localShardValue(whole, t);
    const local = t.sharding?.local;
    if (this.level === 'backward' && local !== undefined && this.known.get(local) !== undefined)
      return distribute(this, t);
    const same = this.known.sameAs(t);
    if (same === undefined || (t.isTracked && this.level === 'front'))
      this.unsupported(
        `a tensor of shape [${t.sizes.join(', ')}] was used that no captured op computed`,
      );
    if (this.level !== 'front') this.define(t, this.valueOf(same));
    else {
      // As `data` does: a detached tensor with its own version.
      this.record(detachOp, [same], {}, null, [t]);
      this.effect('ownVersion', [t]);
    }
    return this.known.get(t) as Value;
  }

  private localShardValue(whole: Tensor, t: Tensor): Value {
    this.define(t, { node: this.effectOn('localShard', whole, t), output: 0 });
    return this.known.get(t) as Value;
  }

  private effectOn(name: EffectName, of: Tensor, result: Tensor): Node {
    return this.graph.add({
      kind: 'effect',
      name,
      effect: name,
      inputs: [this.valueOf(of)],
      metas: [metaOf(result)],
      ...this.context(),
    });
  }

  private context(): Pick<NodeFields, 'mode' | 'origin' | 'tags'> {
    const mode = gradMode();
    return {
      tags: this.tagsNow(),
      mode: this.level !== 'front' || mode === this.outerMode ? null : mode,
      origin: replayed.origin ?? this.place(),
    };
  }

  private tagsNow(): ReadonlySet<string> {
    const inherited = replayed.tags ?? this.regions.tags;
    if (inherited.size === 0) return this.tags;
    return this.tags.size === 0 ? inherited : new Set([...this.tags, ...inherited]);
  }

  /** Gives a tensor its value, unless it has one. */
  define(t: Tensor, value: Value): void {
    this.known.define(t, value);
  }
}
