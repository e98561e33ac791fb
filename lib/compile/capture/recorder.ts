/**
 * Records ops and effects as nodes of a graph, and knows the value of every tensor. Tensors of the
 * program are borrowed when an op first meets them. What a graph cannot repeat ends the capture.
 */
import { type GradMode, gradMode } from '../../autograd/grad-mode.js';
import type { MemoryFact } from '../../core/backend.js';
import { callSite } from '../../core/call-site.js';
import type { CompileError } from '../../core/errors.js';
import type { AnyOp } from '../../core/op.js';
import type { Storage } from '../../core/storage.js';
import type { GradFn, Tensor } from '../../core/tensor.js';
import { detachOp } from '../../ops/view.js';
import type { EffectName } from '../graph/effects.js';
import { Graph } from '../graph/graph.js';
import { replayed } from '../graph/graph-module.js';
import { metaOf, type Node, type NodeFields, type Value } from '../graph/node.js';
import type { GuardCollector } from '../guards/guard-collector.js';
import { Borrowed } from './borrowed.js';
import { Draws } from './draws.js';
import type { PendingHook } from './hooks.js';
import { ModulePaths } from './module-paths.js';
import { cancelled, refusal } from './refusals.js';
import { sameWindow } from './same-window.js';
import { VersionReads } from './versions.js';

const MADE_IN_CAPTURE =
  'it was made while compile captured a function, and stands for values that only a run ' +
  'computes. Return it from the function instead of storing it elsewhere';

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
  /** Whether the body of a hook is recorded. */
  readonly isHookBody: boolean = false;
  private unrecordedCalls = 0;
  /** Ends the capture when it is aborted. */
  signal: AbortSignal | null = null;
  readonly borrowed = new Borrowed();
  /** The versions that the function reads. */
  readonly versions: VersionReads;
  private readonly outerMode: GradMode = gradMode();
  private readonly values = new Map<Tensor, Value>();
  /** Positions of the inputs. */
  private readonly inputs = new Map<Tensor, number>();
  /** The tensors on each storage that the graph knows. */
  private readonly onStorage = new Map<Storage, Tensor[]>();
  /** Memory of tensors that were made in {@link unrecorded} calls. */
  private readonly unrecordedStorages = new Set<Storage>();
  /** Hooks whose bodies are traced at the end. */
  readonly pendingHooks = new Set<PendingHook>();
  readonly draws: Draws;
  private readonly paths = new ModulePaths();
  /** Whether an alias of a known tensor is that tensor: true below autograd. */
  readonly belowAutograd: boolean;

  constructor(
    guards: GuardCollector,
    belowAutograd = false,
    draws = new Draws(),
    versions = new VersionReads(),
  ) {
    this.guards = guards;
    this.versions = versions;
    this.draws = draws;
    this.belowAutograd = belowAutograd;
  }

  /** Borrows an input. One that is given twice has the value of its first place. */
  placeholder(t: Tensor, position: number, name = 'arg'): Node {
    const first = !this.inputs.has(t);
    if (first) this.inputs.set(t, position);
    const node = this.graph.add({ kind: 'placeholder', name, metas: [metaOf(t)] });
    if (!first) return node;
    this.borrowed.borrow(t);
    this.define(t, { node, output: 0 });
    return node;
  }

  /**
   * Borrows a tensor and makes it a leaf, so that backward ends at it. Its gradient is asked for by
   * its edge.
   */
  borrowAsLeaf(t: Tensor): void {
    this.borrowed.borrowAsLeaf(t);
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
      draw: this.draws.nodeOf(this.graph, params),
      ...this.context(),
    });
    for (let i = 0; i < outputs.length; i++)
      if (outputs[i] !== into) this.define(outputs[i] as Tensor, { node, output: i });
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
   * Runs `fn` and removes the nodes that it added, except reads of unchanged state: one node of the
   * graph repeats all of it. `name` is that of the node.
   */
  unrecorded<T>(name: string, fn: () => T): T {
    const { nodes } = this.graph;
    const start = nodes.length;
    let result: T;
    this.unrecordedCalls++;
    try {
      result = fn();
    } catch (error) {
      this.failedCall = name;
      throw error;
    } finally {
      this.unrecordedCalls--;
    }
    const removed = new Set<Node>();
    for (const node of nodes.splice(start)) {
      const keeps =
        node.kind === 'constant' ||
        node.kind === 'placeholder' ||
        (node.effect === 'readGrad' &&
          node.inputs.every((v) => 'node' in v && !removed.has(v.node)));
      if (keeps) nodes.push(node);
      else removed.add(node);
    }
    this.forgetValues(removed);
    return result;
  }

  private forgetValues(removed: ReadonlySet<Node>): void {
    for (const [t, value] of this.values) {
      if ('number' in value || !removed.has(value.node)) continue;
      this.values.delete(t);
      const { storage } = t;
      const others = storage === null ? undefined : this.onStorage.get(storage);
      if (storage === null || others === undefined) continue;
      this.unrecordedStorages.add(storage);
      others.splice(others.indexOf(t), 1);
    }
    this.draws.forget(removed);
  }

  /**
   * Whether calls that the program makes beside ops become nodes: not below autograd, and not
   * inside of one that does.
   */
  get repeatsCalls(): boolean {
    return !this.belowAutograd && this.unrecordedCalls === 0;
  }

  /** A known tensor that is an output of the tape's node, or the leaf that it accumulates into. */
  tensorAt(node: GradFn, outputNr: number | null): Tensor | null {
    for (const t of this.values.keys())
      if (
        t.gradAccumulator === node ||
        (t.node === node && t.outputNr === (outputNr ?? t.outputNr))
      )
        return t;
    return null;
  }

  /** Whether the tensor, or its memory, is known. */
  protected knows(t: Tensor): boolean {
    return this.values.has(t) || (t.storage !== null && this.onStorage.has(t.storage));
  }

  /** Ends the memory that another recorder made together with this capture. */
  absorb(other: Recorder): void {
    for (const storage of other.onStorage.keys())
      if (!this.onStorage.has(storage)) this.unrecordedStorages.add(storage);
  }

  /** Whether a tensor is another one at another call: an input, or one that a run computes. */
  changesWithCalls(t: Tensor): boolean {
    return this.inputs.has(t) || this.isOwn(t);
  }

  /** Fails the capture. @throws CompileError that says what cannot be recorded, and where */
  unsupported(what: string): never {
    this.broken ??= refusal(what, callSite(), this.paths.ofCurrentModule());
    throw this.broken;
  }

  /**
   * Reads `.grad`: null stays a fact that guards compare; a gradient becomes a value that each run
   * reads anew.
   */
  readsGrad(t: Tensor): void {
    if (t.gradTensor !== null || this.assignedGrads.has(t) || this.isOwn(t)) return;
    this.valueOf(t);
    const grad = this.borrowed.gradOf(t);
    this.guards.expectGrad(this.inputs.get(t) ?? t, grad);
    if (grad === null) return;
    if (!this.values.has(grad)) {
      this.borrowed.borrow(grad);
      this.define(grad, { node: this.effectOn('readGrad', t, grad), output: 0 });
    }
    t.gradTensor = grad;
  }

  /** Reads a fact of a tensor's memory; guards compare it for all tensors of the program on it. */
  readsMemory(t: Tensor, fact: MemoryFact): void {
    if (t.storage === null) return;
    this.valueOf(t);
    for (const owner of this.borrowed.on(t.storage))
      this.guards.expectMemory(this.inputs.get(owner) ?? owner, fact);
  }

  /** Called when a tensor has got other memory. */
  moved(t: Tensor): void {
    const { storage } = t;
    if (storage === null) return;
    const others = this.onStorage.get(storage);
    if (others === undefined) this.onStorage.set(storage, [t]);
    else if (!others.includes(t)) others.push(t);
  }

  /** A tensor on the storage, through which an effect on the storage is repeated. */
  tensorOn(storage: Storage): Tensor {
    return (
      this.onStorage.get(storage)?.find((t) => t.storage === storage) ??
      this.unsupported('a storage was resized that the function did not use before')
    );
  }

  /** The value of a tensor. One from outside is borrowed and becomes a constant. */
  valueOf(t: Tensor): Value {
    if (t.storage === null) return { number: t };
    const known = this.values.get(t);
    if (known !== undefined) return known;
    if (this.isOwn(t)) return this.aliasValue(t);
    const whole = this.wholeOf(t);
    if (whole !== undefined) return this.localShardValue(whole, t);
    this.guards.addConstant(t);
    this.constant(t);
    return this.values.get(t) as Value;
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
  positionOf(t: Tensor): number {
    return this.inputs.get(t) ?? -1;
  }

  /** Whether the tensor is of the program, and not made by the capture. */
  isBorrowed(t: Tensor): boolean {
    return this.borrowed.has(t);
  }

  /** Whether the tensor is a constant of the graph. */
  isConstant(t: Tensor): boolean {
    const value = this.values.get(t);
    return value !== undefined && 'node' in value && value.node.kind === 'constant';
  }

  /** Gives borrowed tensors and generators their state back, and ends what the capture made. */
  restore(): void {
    this.borrowed.restore();
    this.draws.restore();
    for (const [storage, tensors] of this.onStorage) {
      if (!tensors.some((t) => t.storage === storage)) continue;
      storage.markFreed(MADE_IN_CAPTURE);
    }
    for (const storage of this.unrecordedStorages) storage.markFreed(MADE_IN_CAPTURE);
  }

  /**
   * Whether the capture made the memory of a tensor. Tensors on `meta` from outside are fake as
   * well.
   */
  private isOwn(t: Tensor): boolean {
    return (
      t.isFake &&
      !this.borrowed.has(t) &&
      (t.device.type !== 'meta' || this.onStorage.has(t.storage as Storage))
    );
  }

  /** The value of a tensor that was made without the dispatcher on the memory of a known one. */
  private aliasValue(t: Tensor): Value {
    const whole = this.wholeOf(t);
    if (whole !== undefined) return this.localShardValue(whole, t);
    const others = this.onStorage.get(t.storage as Storage) ?? [];
    const same = others.find((other) => other.storage === t.storage && sameWindow(other, t));
    if (same === undefined || (t.requiresGrad && !this.belowAutograd))
      this.unsupported(
        `a tensor of shape [${t.shape.join(', ')}] was used that no captured op computed`,
      );
    if (this.belowAutograd) this.define(t, this.valueOf(same));
    else {
      // As `data` does: a detached tensor with its own version.
      this.record(detachOp, [same], {}, null, [t]);
      this.effect('ownVersion', [t]);
    }
    return this.values.get(t) as Value;
  }

  /** The distributed tensor whose local shard this is, at the front level. */
  private wholeOf(t: Tensor): Tensor | undefined {
    if (this.belowAutograd) return undefined;
    return this.onStorage.get(t.storage as Storage)?.find((other) => other.sharding?.local === t);
  }

  private localShardValue(whole: Tensor, t: Tensor): Value {
    this.define(t, { node: this.effectOn('localShard', whole, t), output: 0 });
    return this.values.get(t) as Value;
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
      tags: this.tags,
      mode: this.belowAutograd || mode === this.outerMode ? null : mode,
      origin: replayed.origin ?? { site: callSite(), path: this.paths.ofCurrentModule() },
    };
  }

  /** Gives a tensor its value, unless it has one. */
  define(t: Tensor, value: Value): void {
    if (this.values.has(t)) return;
    this.values.set(t, value);
    this.moved(t);
  }
}
