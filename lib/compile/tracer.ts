/**
 * Records in a graph every op that reaches the backend and every effect that a graph can repeat.
 * Other effects end the capture.
 */
import { type GradMode, gradMode } from '../autograd/grad-mode.js';
import { Node as TapeNode } from '../autograd/node.js';
import { callSite } from '../core/call-site.js';
import { CompileError } from '../core/errors.js';
import type { AnyOp } from '../core/op.js';
import type { DrawSource, Generator } from '../core/random.js';
import type { Storage } from '../core/storage.js';
import type { Tensor } from '../core/tensor.js';
import { fakeLike, runFake } from '../eager/fake-backend.js';
import { clone } from '../ops/copy.js';
import { detachOp } from '../ops/view.js';
import { AutogradState } from './autograd-state.js';
import { Graph, Node, type Value } from './graph.js';
import type { GuardCollector } from './guard-collector.js';

/** The autograd node of a fake input whose real tensor is not a leaf. */
class InputHistory extends TapeNode {
  readonly name = 'Input';

  apply(): never {
    throw new CompileError('backward ran through the input of a capture');
  }
}

export class Tracer {
  readonly graph = new Graph();
  /** The first effect that could not be recorded. It fails the capture even if `fn` catches it. */
  broken: CompileError | null = null;
  private readonly guards: GuardCollector;
  private readonly outerMode: GradMode = gradMode();
  private readonly values = new Map<Tensor, Value>();
  /** Fake tensors of real ones: of inputs and constants. */
  private readonly fakes = new Map<Tensor, Tensor>();
  private readonly reals = new Map<Tensor, Tensor | number>();
  private readonly fakeStorages = new Map<Storage, Storage>();
  private readonly constantStates: AutogradState[] = [];
  /** A tensor on each storage. */
  private readonly storages = new Map<Storage, Tensor>();
  private readonly names = new Map<string, number>();
  private drawn: DrawSource | null = null;
  private readonly generators = new Map<Generator, () => void>();

  constructor(guards: GuardCollector) {
    this.guards = guards;
  }

  /** The fake tensor of an input. An input that is given twice has one. */
  placeholder(real: Tensor, position: number): Tensor {
    const known = this.fakes.get(real);
    const fake = known ?? this.makeFake(real, position);
    const node = new Node({
      kind: 'placeholder',
      name: this.unique('arg'),
      metas: [describe(fake)],
    });
    if (known === undefined) this.define(fake, node, 0);
    else this.push(node);
    return fake;
  }

  run(op: AnyOp, inputs: readonly Tensor[], params: object, into: Tensor | null): Tensor[] {
    if (op.traits.includes('placement'))
      this.unsupported(`${op.name} was called, of a distributed tensor,`);
    const fakes = inputs.map((t) => this.fakeOf(t));
    const target = into === null ? null : this.fakeOf(into);
    const outputs = runFake(op, fakes, params, target);
    const node = this.call(op, fakes, params, outputs);
    if (target !== null) node.into = this.valueOf(target);
    outputs.forEach((t, i) => {
      this.define(t, node, i);
    });
    if (outputs.length === 0 || outputs[0] === target) this.push(node);
    return into === null ? outputs : [into];
  }

  /** Records an effect on tensors, which the graph repeats on the real ones. */
  effect<Tensors extends readonly Tensor[]>(
    name: string,
    tensors: readonly [...Tensors],
    effect: (...real: Tensors) => void,
  ): void {
    this.push(
      new Node({
        kind: 'effect',
        name,
        inputs: tensors.map((t) => this.valueOf(this.fakeOf(t))),
        effect: effect as never, // called with one tensor for each input
      }),
    );
  }

  /** Makes new values a constant, which every run of the graph copies. */
  freshCopy(values: Tensor): Tensor {
    this.constant(values);
    return clone(values);
  }

  /** Fails the capture. @throws CompileError that says what cannot be recorded, and where */
  unsupported(what: string): never {
    const at = callSite();
    this.broken ??= new CompileError(
      `compile: ${what} while the function was captured, at ${at || 'an unknown place'}. A ` +
        'graph cannot repeat that: do it outside of the compiled function, or leave out ' +
        'fullgraph to run the function uncompiled.',
      { what, at },
    );
    throw this.broken;
  }

  /**
   * Sets the source that the next random call draws from. When the capture ends, the generator gets
   * its state back.
   */
  draws(generator: Generator, source: DrawSource): void {
    if (!this.generators.has(generator)) this.generators.set(generator, generator.remember());
    this.drawn = source;
  }

  /** `.grad` is null in the graph. A gradient that exists would become a constant. */
  readsGrad(t: Tensor): void {
    const owner = this.reals.get(t) ?? (this.isOwn(t) ? null : t);
    if (owner === null) return;
    if ((typeof owner === 'number' ? (this.inputs[owner] as Tensor) : owner).gradTensor !== null)
      this.unsupported('a .grad that is not null was read');
    this.guards.expectNoGrad(owner);
  }

  /** Real inputs, by position. */
  private readonly inputs: Tensor[] = [];

  /** Restores the autograd state of real tensors, and the generators. */
  restore(): void {
    for (const state of this.constantStates) state.restore();
    for (const bringBack of this.generators.values()) bringBack();
  }

  /** Forgets the storage of a tensor, because the tensor is about to get another one. */
  leavesStorage(t: Tensor): void {
    if (t.storage !== null && this.storages.get(t.storage) === t) this.storages.delete(t.storage);
  }

  /** A tensor on the storage, through which an effect on the storage is replayed. */
  tensorOn(storage: Storage): Tensor {
    return (
      this.storages.get(storage) ??
      this.unsupported('a storage was resized that the function did not use before')
    );
  }

  valueOf(t: Tensor): Value {
    if (t.storage === null) return { number: t };
    return (
      this.values.get(t) ??
      this.unsupported(
        `a tensor of shape [${t.shape.join(', ')}] was used that no captured op computed`,
      )
    );
  }

  /** The fake tensor in the graph. A real tensor from outside becomes a constant. */
  fakeOf(t: Tensor): Tensor {
    if (t.storage === null || this.values.has(t)) return t;
    if (this.isOwn(t)) return this.alias(t);
    const known = this.fakes.get(t);
    if (known !== undefined) return known;
    for (const each of t.base === null ? [t] : [t, t.base])
      this.constantStates.push(new AutogradState(each));
    this.guards.addConstant(t);
    return this.constant(t);
  }

  /**
   * Whether the trace made the memory of a tensor. Tensors on `meta` from outside are fake as well.
   */
  private isOwn(t: Tensor): boolean {
    return t.isFake && (t.device.type !== 'meta' || this.storages.has(t.storage as Storage));
  }

  private constant(real: Tensor): Tensor {
    const fake = this.makeFake(real, real);
    this.define(
      fake,
      new Node({
        kind: 'constant',
        name: this.unique('const'),
        metas: [describe(fake)],
        tensor: real,
      }),
      0,
    );
    return fake;
  }

  /** Makes the fake of a real tensor. Fakes share a storage where the real tensors do. */
  private makeFake(real: Tensor, owner: Tensor | number): Tensor {
    const fake = fakeLike(real);
    if (typeof owner === 'number') this.inputs[owner] = real;
    this.fakes.set(real, fake);
    this.reals.set(fake, owner);
    const storage = this.fakeStorages.get(real.storage as Storage);
    if (storage !== undefined) fake.storage = storage;
    else this.fakeStorages.set(real.storage as Storage, fake.storage as Storage);
    if (!real.isLeaf) {
      fake.leafRequiresGrad = false;
      fake.node = new InputHistory(1, []);
    }
    return fake;
  }

  /**
   * Records a tensor that was created without the dispatcher on the storage of another, as `data`
   * does: a detached tensor with its own version.
   */
  private alias(t: Tensor): Tensor {
    const known = [...this.values.keys()].find(
      (other) =>
        other.storage === t.storage &&
        other.storageOffset === t.storageOffset &&
        sameWindow(other, t),
    );
    if (known === undefined || t.requiresGrad)
      this.unsupported(
        `a tensor of shape [${t.shape.join(', ')}] was used that no captured op computed`,
      );
    this.define(t, this.call(detachOp, [known], {}, [t]), 0);
    this.effect('ownVersion', [t], (real) => {
      real.versionCounter = null;
    });
    return t;
  }

  private call(
    op: AnyOp,
    inputs: readonly Tensor[],
    params: object,
    outputs: readonly Tensor[],
  ): Node {
    const mode = gradMode();
    const random = this.drawn !== null && 'seedLow' in params;
    const generator = random ? this.drawn : null;
    if (random) this.drawn = null;
    return new Node({
      kind: 'call',
      name: this.unique(op.name),
      op,
      inputs: inputs.map((t) => this.valueOf(t)),
      params,
      metas: outputs.map(describe),
      mode: mode === this.outerMode ? null : mode,
      generator,
    });
  }

  private define(t: Tensor, node: Node, output: number): void {
    if (this.values.has(t)) return;
    this.values.set(t, { node, output });
    if (t.storage !== null && !this.storages.has(t.storage)) this.storages.set(t.storage, t);
    if (output === 0) this.push(node);
  }

  private push(node: Node): void {
    this.graph.nodes.push(node);
  }

  private unique(base: string): string {
    const count = this.names.get(base) ?? 0;
    this.names.set(base, count + 1);
    return count === 0 ? base : `${base}_${count}`;
  }
}

function sameWindow(a: Tensor, b: Tensor): boolean {
  return (
    a.dtype === b.dtype &&
    a.shape.join() === b.shape.join() &&
    a.strides.join() === b.strides.join()
  );
}

function describe(t: Tensor): string {
  return `${t.dtype.name}[${t.shape.join(', ')}]`;
}
