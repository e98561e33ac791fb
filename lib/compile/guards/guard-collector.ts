/**
 * Collects what a capture depends on: arguments, modules that it calls or whose training flag it
 * reads, tensors that became constants of the graph, and facts of tensors where it read them. The
 * guards made from them allow the graph only while all are unchanged.
 */
import type { MemoryFact } from '../../core/backend.js';
import { isExported } from '../../core/library-exports.js';
import type { Tensor } from '../../core/tensor.js';
import { tensors as tensorsIn } from '../../core/tree.js';
import type { ReboundPlace } from '../rebound.js';
import { ClosureFacts } from './closure-facts.js';
import { Guards, named, OUTSIDE, type OwnedFact } from './guards.js';
import { leafHookFacts } from './leaf-hooks.js';
import { firstOf, type Matcher } from './matcher.js';
import { forget, MatcherFactory } from './matcher-factory.js';
import { ModeFacts } from './modes.js';
import { forwardHooksOf, ModuleFacts } from './module-facts.js';
import { hasOwnProperties, isModule, isOpaqueIterator } from './object-walk.js';
import { OptimizerFacts } from './optimizer-facts.js';
import { ReboundFacts } from './rebound-facts.js';
import { StateBefore } from './state-before.js';
import { StateFacts } from './state-facts.js';
import { historyOf, OuterTensor, TensorFacts } from './tensor-facts.js';
import { WeakCollections } from './weak-facts.js';

/** Facts of a tensor that are compared only if the function read them. */
const memoryFacts: Record<MemoryFact, (t: Tensor) => unknown> = {
  'the size of the storage': (t) => t.storage?.nbytes,
  'the storage offset': (t) => t.storageOffset,
  'the version': (t) => t.currentVersion,
};

/** Collects during one capture. */
export class GuardCollector {
  private readonly modes = new ModeFacts();
  private readonly state = new StateBefore();
  private readonly factory = new MatcherFactory({
    tensor: (t, path) => {
      if (!this.tensors.has(t) && !this.rebound?.has(t)) this.tensors.set(t, path);
    },
    properties: (t, path) => this.state.addTensor(t, path),
    module: (module, path) => this.addModuleAt(module, path),
    container: (value, path) => {
      this.state.add(value);
      if (isOpaqueIterator(value)) this.iterator ??= named(path);
      if (!this.isClosedOver && hasOwnProperties(value)) this.extended ??= named(path);
    },
    weak: (value, path) => this.weak.add(value, path, this.factory.parts()),
    inner: (value, path) => this.state.addInner(value, path),
    members: (value, path, isInner) =>
      typeof value === 'function'
        ? this.closures.addFunction(value)
        : this.closures.addMembers(
            value,
            path,
            !isInner && !this.isClosedOver && !this.isInLibrary,
          ),
    isSeen: (getter) => this.closures.isSeen(getter),
    tooMany: (path) => {
      this.uncompared ??= named(path);
    },
    isOpaque: (value, isInner) => (isInner || this.isClosedOver) && this.closures.isOpaque(value),
  });
  private readonly weak = new WeakCollections();
  /** What the function closes over. */
  readonly closures = new ClosureFacts((value, path) => this.closedOver(value, path));
  /** Whether an object is looked at that a variable holds. */
  private isClosedOver = false;
  /** Whether attributes of a module of the library are looked at. */
  private isInLibrary = false;
  /** Tensors from outside, with their paths. */
  private readonly tensors = new Map<Tensor, string>();
  private readonly modules = new Map<object, ModuleFacts | null>();
  private readonly before = new Map<object, ReadonlyMap<string, unknown>>();
  private readonly overwritten: (readonly [module: object, name: string])[] = [];
  private readonly optimizers = new Set<object>();
  private readonly states: StateFacts[] = [];
  private readonly statesRead = new Set<() => unknown>();
  /** Leaves whose hooks count. */
  private readonly leaves = new Set<number | Tensor>();
  private readonly constants = new Set<Tensor>();
  /** Tensors whose memory the graph fills and frees. */
  private readonly managed = new Set<Tensor>();
  /** What `.grad` was where it was read: of inputs, by position, and of constants. */
  private readonly grads = new Map<number | Tensor, TensorFacts | null>();
  private readonly reads = new Map<number | Tensor, Set<MemoryFact>>();
  /** Tensors from outside that the function asked whether they have a history. */
  private readonly histories = new Set<Tensor>();
  /** The path of an iterator of an array, a map, a set or a string; null if there is none. */
  iterator: string | null = null;
  /** The path of a collection with properties beside its items; null if there is none. */
  extended: string | null = null;
  /** The path of an instance that is not compared, because there are too many; null for none. */
  uncompared: string | null = null;
  private readonly args: Matcher;
  /** The object that the function is called on; null if it uses none. */
  readonly receiver: object | null;
  private readonly ofReceiver: Matcher | null;
  /** Attributes of modules that are inputs; null for none. */
  private readonly rebound: ReboundFacts | null;
  private readonly given: readonly unknown[];

  /**
   * `fn`: the function of the program; null if it is one of the library. `module`: the one that it
   * calls, whose private fields it may assign to.
   */
  constructor(
    args: readonly unknown[] = [],
    receiver: object | null = null,
    places: readonly ReboundPlace[] = [],
    fn: object | null = null,
    module: object | null = null,
  ) {
    this.given = args;
    this.args = this.factory.argument(args, 'arguments');
    this.rebound =
      places.length === 0 ? null : new ReboundFacts(places, tensorsIn(args).length, this.factory);
    this.receiver = receiver;
    this.ofReceiver = receiver === null ? null : this.factory.receiver(receiver, 'this');
    if (receiver !== null && !isModule(receiver)) this.state.add(receiver);
    if (fn !== null) this.closures.addFunction(fn, true);
    if (module !== null) this.addModule(module);
  }

  /** Adds a module before its first use. */
  addModule(module: object): void {
    const { name } = module.constructor;
    const number = [...this.modules.values()].filter((facts) => facts?.path === name).length;
    this.addModuleAt(module, number === 0 ? name : `another ${name}`);
  }

  private addModuleAt(module: object, path: string): void {
    if (this.modules.has(module) || !isModule(module)) return;
    this.modules.set(module, null);
    this.state.add(module);
    this.before.set(module, new Map(Object.entries(module)));
    const isRebound = (name: string): boolean => this.rebound?.isAt(module, name) ?? false;
    const { isClosedOver, isInLibrary } = this;
    this.isClosedOver = false; // modules compare their attributes, however they are reached
    this.isInLibrary = isExported(module.constructor);
    this.modules.set(module, new ModuleFacts(module, path, this.factory, isRebound));
    this.closures.addMembers(module, path);
    this.isClosedOver = isClosedOver;
    this.isInLibrary = isInLibrary;
  }

  /** The matcher of an object that a variable holds. */
  private closedOver(value: object, path: string): Matcher {
    const { isClosedOver } = this;
    if (isOpaqueIterator(value)) this.iterator ??= path;
    this.isClosedOver = true;
    const matcher = this.factory.value(value, path);
    this.isClosedOver = isClosedOver;
    return matcher;
  }

  /** The inputs of the graph: the tensors of the arguments, then those of marked attributes. */
  inputs(): Tensor[] {
    return [...tensorsIn(this.given), ...(this.rebound?.tensors ?? [])];
  }

  /** Adds the value of a function that decides what the graph contains. */
  addState(path: string, read: () => unknown): void {
    if (this.statesRead.has(read)) return;
    this.statesRead.add(read);
    const state = new StateFacts(path, read);
    if (!state.isEmpty) this.states.push(state);
  }

  /** The values so far, with their paths. */
  statesSeen(): unknown[] {
    return this.states.flatMap(({ path, expected }) => [path, expected]);
  }

  /** Adds an optimizer whose step the function takes. */
  addOptimizer(optimizer: object): void {
    this.optimizers.add(optimizer);
  }

  /** The optimizers whose steps the function takes. */
  get optimizersUsed(): ReadonlySet<object> {
    return this.optimizers;
  }

  /** Whether guards allow only calls before which `.grad` of the tensor is null. */
  expectsNoGrad(owner: number | Tensor): boolean {
    return this.grads.get(owner) === null;
  }

  /** The path of a tensor of the arguments, such as `argument 1.x`. */
  pathOf(t: Tensor): string {
    return named(this.factory.pathOf(t));
  }

  /** The path of a tensor that the function uses beside its arguments, such as `Linear.weight`. */
  outerPathOf(t: Tensor): string {
    return named(this.tensors.get(t) ?? OUTSIDE);
  }

  /** Adds a tensor that became a constant of the graph. */
  addConstant(constant: Tensor): void {
    this.constants.add(constant);
    if (!this.tensors.has(constant)) this.tensors.set(constant, OUTSIDE);
  }

  /** Adds a tensor whose memory the graph fills and frees. */
  addManaged(t: Tensor): void {
    this.managed.add(t);
  }

  /** Adds a tensor whose `.grad` was read: only its metadata counts. */
  expectGrad(owner: number | Tensor, grad: Tensor | null): void {
    if (!this.grads.has(owner)) this.grads.set(owner, grad === null ? null : new TensorFacts(grad));
  }

  /** Adds a tensor from outside, because the function asked whether it has a history. */
  expectHistory(t: Tensor): void {
    this.histories.add(t);
  }

  /** Adds a fact of the memory of a tensor, because the function read it. */
  expectMemory(owner: number | Tensor, fact: MemoryFact): void {
    const facts = this.reads.get(owner);
    if (facts === undefined) this.reads.set(owner, new Set([fact]));
    else facts.add(fact);
  }

  /** Adds a leaf, by its position or itself, whose hooks run in the graph. */
  expectHooks(owner: number | Tensor): void {
    this.leaves.add(owner);
  }

  /** Whether an object was there before the capture. */
  knows(value: object): boolean {
    return this.factory.knows(value);
  }

  /** The modules seen so far, with the attributes that they had before their first use. */
  modulesBefore(): ReadonlyMap<object, ReadonlyMap<string, unknown>> {
    return this.before;
  }

  /** Adds an attribute whose tensor the function replaces and does not use. */
  overwrites(module: object, name: string): void {
    this.overwritten.push([module, name]);
  }

  /**
   * The name of a module's property, or of a variable, that the function changed during the
   * capture; undefined if there is none.
   */
  changed(): string | undefined {
    // Objects that are met again are compared with those of the arguments.
    this.args.matches(this.given);
    this.ofReceiver?.matches(this.receiver);
    const difference =
      firstOf([...this.modules.values()], (facts) => facts?.difference() ?? null) ??
      this.closures.difference();
    forget(this.factory.slots);
    return difference?.path ?? this.state.changed() ?? this.weak.changed();
  }

  /** Sees what the function asks weak collections for, until {@link endCapture}. */
  beginCapture(): void {
    this.weak.watch();
  }

  endCapture(): void {
    this.weak.unwatch();
  }

  /** Restores all state, because the function is about to run again. */
  restore(): void {
    this.state.restore();
    this.weak.restore();
  }

  /**
   * The guards on everything collected, after the capture. `known`: constants of other captures of
   * the function, so an input that is one of them was perhaps not meant as the input.
   */
  guards(inputs: readonly Tensor[], known: ReadonlySet<Tensor> = new Set()): Guards {
    const pathOf = (owner: number | Tensor): string =>
      typeof owner === 'number'
        ? this.factory.pathOf(inputs[owner] as Tensor)
        : (this.tensors.get(owner) ?? OUTSIDE);
    for (const [module, name] of this.overwritten) this.modules.get(module)?.overwrite(name);
    return new Guards({
      modes: this.modes,
      args: this.args,
      rebound: this.rebound,
      receiver: this.ofReceiver && { value: this.receiver, matcher: this.ofReceiver },
      modules: [...this.modules.values()].filter((facts) => facts !== null),
      states: this.states,
      optimizers: [...this.optimizers].map((optimizer) => new OptimizerFacts(optimizer)),
      tensors: [...this.tensors].map(([t, path]) => new OuterTensor(t, path, this.managed.has(t))),
      grads: [...this.grads].map(([owner, grad]) => [owner, grad, pathOf(owner)] as const),
      facts: [
        ...this.memoryFacts(inputs, pathOf),
        ...[...this.histories].filter((t) => !this.tensors.has(t)).map(historyFact),
        ...[...this.leaves].flatMap((owner) =>
          leafHookFacts(
            typeof owner === 'number' ? (inputs[owner] as Tensor) : owner,
            owner,
            pathOf(owner),
          ),
        ),
        ...inputs.flatMap((t, i) => this.factsOfInput(t, i, known)),
      ],
      outer: this.outerBeside(inputs),
      slots: this.factory.slots,
      closures: this.closuresAfter(),
      weak: this.weak.facts(
        inputs,
        // The list of the arguments itself is a new one in each call.
        this.factory.given.filter(([value]) => value !== this.given),
        pathOf,
      ),
    });
  }

  /**
   * What the function closes over, and the forward hooks of its modules: those have effects at
   * captures only, so what they change is compared as they leave it.
   */
  private closuresAfter(): ClosureFacts | null {
    for (const module of this.modules.keys())
      if (isModule(module))
        for (const hook of forwardHooksOf(module)) this.closures.addFunction(hook, true);
    return this.closures.finish();
  }

  /**
   * The tensors that the function can reach beside its arguments. It may ask whether an argument is
   * one of them, as by `===` and `Map.get`, so each of them as an argument has a capture of its
   * own.
   */
  private outerBeside(inputs: readonly Tensor[]): ReadonlySet<Tensor> {
    const outer = new Set([...this.tensors.keys(), ...this.constants]);
    for (const t of inputs) outer.delete(t);
    return outer;
  }

  /** The tensors that the graph reads as constants. */
  get constantTensors(): ReadonlySet<Tensor> {
    return this.constants;
  }

  private memoryFacts(
    inputs: readonly Tensor[],
    pathOf: (owner: number | Tensor) => string,
  ): OwnedFact[] {
    return [...this.reads].flatMap(([owner, names]) =>
      [...names].map((name) => {
        const read = memoryFacts[name];
        const expected = read(typeof owner === 'number' ? (inputs[owner] as Tensor) : owner);
        return { owner, path: `${name} of ${pathOf(owner)}`, read, expected };
      }),
    );
  }

  /** An input that modules hold, or a view of a constant, must stay the same object. */
  private factsOfInput(t: Tensor, owner: number, known: ReadonlySet<Tensor>): OwnedFact[] {
    const path = this.factory.pathOf(t);
    const facts: OwnedFact[] = [];
    if (this.tensors.has(t) || known.has(t))
      facts.push({ owner, path, read: (given) => given, expected: t });
    if (t.base !== null && (this.tensors.has(t.base) || known.has(t.base)))
      facts.push({ owner, path: `${path}._base`, read: (given) => given.base, expected: t.base });
    return facts;
  }
}

/** What a tensor that no op uses is to autograd. */
const historyFact = (t: Tensor): OwnedFact => ({
  owner: t,
  path: 'the history of a tensor from outside',
  read: historyOf,
  expected: historyOf(t),
});
