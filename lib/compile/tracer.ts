/**
 * Writes down every op that reaches the bottom layer, and every effect that it can repeat; refuses
 * the others.
 */
import { type GradMode, gradMode } from '../autograd/grad-mode.js';
import { Node as TapeNode } from '../autograd/node.js';
import { callSite } from '../core/call-site.js';
import { CompileError } from '../core/errors.js';
import type { AnyOp } from '../core/op.js';
import type { DrawSource, Generator } from '../core/random.js';
import type { Storage } from '../core/storage.js';
import type { Tensor } from '../core/tensor.js';
import { clone } from '../ops/copy.js';
import { detachOp } from '../ops/view.js';
import { AutogradState } from './autograd-state.js';
import { fakeLike, runFake } from './fake-backend.js';
import { Graph, Node, type Value } from './graph.js';
import type { Watcher } from './guard-collector.js';

/** Stands for the history of an input that was computed before: it is no leaf. */
class InputHistory extends TapeNode {
  readonly name = 'Input';

  apply(): never {
    throw new CompileError('the history of a capture was walked');
  }
}

export class Tracer {
  readonly graph = new Graph();
  /**
   * The first thing that could not be recorded: it ends the capture, also where the function
   * catches the error.
   */
  broken: CompileError | null = null;
  private readonly watcher: Watcher;
  private readonly outerMode: GradMode = gradMode();
  private readonly values = new Map<Tensor, Value>();
  /** Stand-ins of real tensors: of inputs and of constants. */
  private readonly fakes = new Map<Tensor, Tensor>();
  private readonly reals = new Map<Tensor, Tensor | number>();
  private readonly fakeStorages = new Map<Storage, Storage>();
  private readonly constantStates: AutogradState[] = [];
  /** By storage, a tensor that shows it. */
  private readonly storages = new Map<Storage, Tensor>();
  private readonly names = new Map<string, number>();
  private drawn: DrawSource | null = null;
  private readonly generators = new Map<Generator, () => void>();

  constructor(watcher: Watcher) {
    this.watcher = watcher;
  }

  /** The stand-in of an input; an input that is given twice is one object in the function too. */
  placeholder(real: Tensor, position: number): Tensor {
    const known = this.fakes.get(real);
    const fake = known ?? this.standIn(real, position);
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

  effect(name: string, tensors: readonly Tensor[], effect: (...real: Tensor[]) => void): void {
    this.push(
      new Node({
        kind: 'effect',
        name,
        inputs: tensors.map((t) => this.valueOf(this.fakeOf(t))),
        effect,
      }),
    );
  }

  /** Values that the function wrote down become a constant, of which every run gets a copy. */
  freshCopy(values: Tensor): Tensor {
    this.constant(values);
    return clone(values);
  }

  /** @throws CompileError that says what cannot be recorded, and where it was done */
  unsupported(what: string): never {
    const at = callSite();
    this.broken ??= new CompileError(
      `compile: ${what} while the function was captured, at ${at || 'an unknown place'}. A graph cannot repeat that: do it outside of the compiled function, or leave out fullgraph and the function runs as it is.`,
      { what, at },
    );
    throw this.broken;
  }

  /**
   * The next random call draws from this source; its generator gets its state back when the capture
   * ends.
   */
  draws(generator: Generator, source: DrawSource): void {
    if (!this.generators.has(generator)) this.generators.set(generator, generator.remember());
    this.drawn = source;
  }

  /** `.grad` is null in the graph; a gradient that is there would be a constant. */
  readsGrad(t: Tensor): void {
    const owner = this.reals.get(t) ?? (t.isFake ? null : t);
    if (owner === null) return;
    if ((typeof owner === 'number' ? (this.inputs[owner] as Tensor) : owner).gradTensor !== null)
      this.unsupported('a .grad that is not null was read');
    this.watcher.foundNoGrad(owner);
  }

  /** Real inputs, by position. */
  private readonly inputs: Tensor[] = [];

  /** Undoes what the capture did to real tensors and generators. */
  restore(): void {
    for (const state of this.constantStates) state.restore();
    for (const bringBack of this.generators.values()) bringBack();
  }

  /** Forgets that a tensor shows its storage, because it is about to show another one. */
  leavesStorage(t: Tensor): void {
    if (t.storage !== null && this.storages.get(t.storage) === t) this.storages.delete(t.storage);
  }

  /** A tensor that views the storage: what an effect on a storage is replayed through. */
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
        `a tensor of shape [${t.shape.join(', ')}] was used that no captured op made`,
      )
    );
  }

  /** What stands for a tensor in the graph: a real one from outside becomes a constant. */
  fakeOf(t: Tensor): Tensor {
    if (t.storage === null || this.values.has(t)) return t;
    if (t.isFake) return this.alias(t);
    const known = this.fakes.get(t);
    if (known !== undefined) return known;
    for (const each of t.base === null ? [t] : [t, t.base])
      this.constantStates.push(new AutogradState(each));
    this.watcher.took(t);
    return this.constant(t);
  }

  private constant(real: Tensor): Tensor {
    const fake = this.standIn(real, real);
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

  /** A fake of a real tensor; fakes share memory where the real ones do. */
  private standIn(real: Tensor, owner: Tensor | number): Tensor {
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
   * A tensor that was made beside the dispatcher on the memory of another, as `data` does: without
   * history, and with a version of its own.
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
        `a tensor of shape [${t.shape.join(', ')}] was used that no captured op made`,
      );
    this.define(t, this.call(detachOp, [known], {}, [t]), 0);
    this.effect('ownVersion', [t], (real) => {
      (real as Tensor).versionCounter = null;
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
