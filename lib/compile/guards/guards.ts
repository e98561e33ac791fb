/**
 * The guards of a capture: what must be as it was for the graph to serve a call. What is cheap is
 * compared first.
 */
import { moduleChanges } from '../../core/module-changes.js';
import { shown } from '../../core/options.js';
import { isObject } from '../../core/plain-object.js';
import { Tensor } from '../../core/tensor.js';
import type { ClosureClock, ClosureFacts } from './closure-facts.js';
import type { Difference } from './facts.js';
import { firstOf, type Matcher, type Slot } from './matcher.js';
import { areDistinct, forget } from './matcher-factory.js';
import type { ModeFacts } from './modes.js';
import type { ModuleFacts } from './module-facts.js';
import type { OptimizerFacts } from './optimizer-facts.js';
import type { ReboundFacts } from './rebound-facts.js';
import type { StateFacts } from './state-facts.js';
import { ignoringSizes, type OuterTensor, TensorFacts } from './tensor-facts.js';
import type { WeakFacts } from './weak-facts.js';

/** A fact of one tensor that is an input, by its position, or from outside. */
export interface OwnedFact {
  readonly owner: number | Tensor;
  readonly path: string;
  /** The value of the fact; undefined if the tensor has no such value. */
  read(t: Tensor): unknown;
  readonly expected: unknown;
}

/** The path of a tensor that neither arguments nor modules hold. */
export const OUTSIDE = 'a tensor from outside';

/** What the guards of one capture compare. */
export interface GuardParts {
  readonly modes: ModeFacts;
  readonly args: Matcher;
  /** Attributes of modules that are inputs; null for none. */
  readonly rebound: ReboundFacts | null;
  /** The object that the function is called on; null if it uses none. */
  readonly receiver: { readonly value: unknown; readonly matcher: Matcher } | null;
  readonly modules: readonly ModuleFacts[];
  /** What decides what calls do, beside their operands. */
  readonly states: readonly StateFacts[];
  /** Optimizers whose steps are part of the graph. */
  readonly optimizers: readonly OptimizerFacts[];
  /** Tensors from outside; their identity is compared where they are found. */
  readonly tensors: readonly OuterTensor[];
  /** What `.grad` was where it was read; null for none. */
  readonly grads: readonly (readonly [number | Tensor, TensorFacts | null, path: string])[];
  readonly facts: readonly OwnedFact[];
  /** Tensors that no input may be, because the function can reach them beside its arguments. */
  readonly outer: ReadonlySet<Tensor>;
  /** Objects that must be different ones. */
  readonly slots: readonly Slot[];
  /** What the function closes over; null if nothing. */
  readonly closures: ClosureFacts | null;
  /** What weak collections have of the arguments; null if the function can reach none. */
  readonly weak: WeakFacts | null;
}

export class Guards {
  private readonly parts: GuardParts;
  private counted: number = moduleChanges.count;

  constructor(parts: GuardParts) {
    this.parts = parts;
  }

  /** Whether the capture serves a call. */
  match(args: readonly unknown[], inputs: readonly Tensor[], clock: ClosureClock): boolean {
    const matches = this.matchCall(args, inputs) && this.matchOutside(inputs, clock);
    forget(this.parts.slots);
    return matches;
  }

  /** Whether the modes, the states and the arguments are those of the capture. */
  matchArguments(args: readonly unknown[]): boolean {
    const matches = this.matchGiven(args);
    forget(this.parts.slots);
    return matches;
  }

  /**
   * Whether the capture would serve a call if the numbers and the sizes of tensors among its
   * arguments were others.
   */
  matchApartFromSizes(args: readonly unknown[], inputs: readonly Tensor[]): boolean {
    const matches = ignoringSizes(() => this.matchGiven(args)) && this.matchBeside(inputs);
    forget(this.parts.slots);
    return matches;
  }

  private matchGiven(args: readonly unknown[]): boolean {
    const { modes, args: expected, states } = this.parts;
    if (!modes.matches() || !expected.matches(args)) return false;
    for (let i = 0; i < states.length; i++) if (!(states[i] as StateFacts).matches()) return false;
    return true;
  }

  private matchCall(args: readonly unknown[], inputs: readonly Tensor[]): boolean {
    return this.matchGiven(args) && this.matchBeside(inputs);
  }

  private matchBeside(inputs: readonly Tensor[]): boolean {
    const { rebound, receiver, modules, optimizers, tensors, outer } = this.parts;
    if (rebound !== null && !rebound.matches(inputs)) return false;
    if (receiver !== null && !receiver.matcher.matches(receiver.value)) return false;
    const { count } = moduleChanges;
    const isCounted = count !== this.counted;
    for (let i = 0; i < modules.length; i++)
      if (!(modules[i] as ModuleFacts).matches(isCounted, inputs)) return false;
    this.counted = count;
    for (let i = 0; i < optimizers.length; i++)
      if (!(optimizers[i] as OptimizerFacts).matches()) return false;
    for (let i = 0; i < tensors.length; i++)
      if (!(tensors[i] as OuterTensor).matches()) return false;
    for (let i = 0; i < inputs.length; i++) if (outer.has(inputs[i] as Tensor)) return false;
    return this.matchOwned(inputs);
  }

  /** Whether the variables that the function closes over are those of the capture. */
  private matchOutside(inputs: readonly Tensor[], clock: ClosureClock): boolean {
    const { closures, weak, slots } = this.parts;
    if (weak !== null && !weak.matches(inputs)) return false;
    return (closures === null || closures.matches(clock)) && areDistinct(slots);
  }

  private matchOwned(inputs: readonly Tensor[]): boolean {
    for (const [owner, expected] of this.parts.grads) {
      const { gradTensor } = tensorOf(owner, inputs);
      if (gradTensor === null || expected === null) {
        if (gradTensor !== null || expected !== null) return false;
      } else if (!expected.matches(gradTensor)) return false;
    }
    for (const { owner, read, expected } of this.parts.facts)
      if (!Object.is(read(tensorOf(owner, inputs)), expected)) return false;
    return true;
  }

  /** The first fact that does not hold for a call. */
  difference(args: readonly unknown[], inputs: readonly Tensor[]): Difference | null {
    const difference = this.differenceOfCall(args, inputs);
    forget(this.parts.slots);
    return difference;
  }

  private differenceOfCall(args: readonly unknown[], inputs: readonly Tensor[]): Difference | null {
    const { modes, args: given, receiver, modules, optimizers, tensors } = this.parts;
    const { facts, grads, outer, slots, rebound, states, closures, weak } = this.parts;
    const first =
      modes.difference() ??
      given.difference('arguments', args) ??
      rebound?.difference(inputs) ??
      receiver?.matcher.difference('this', receiver.value) ??
      firstOf(modules, (module) => module.difference()) ??
      firstOf(states, (state) => state.difference()) ??
      firstOf(optimizers, (optimizer) => optimizer.difference()) ??
      firstOf(tensors, (each) =>
        each.matches() ? null : each.facts.difference(each.path, each.tensor),
      ) ??
      firstOf(grads, ([owner, expected, path]) => {
        const { gradTensor: now } = tensorOf(owner, inputs);
        if (now === null ? expected === null : expected?.matches(now)) return null;
        const is = now === null ? 'null' : String(new TensorFacts(now));
        return { path: `${path}.grad`, before: String(expected), now: is };
      }) ??
      firstOf(facts, ({ owner, path, read, expected }) => {
        const now = read(tensorOf(owner, inputs));
        return Object.is(now, expected) ? null : changed(path, expected, now);
      }) ??
      closures?.difference() ??
      null;
    if (first !== null) return renamed(first);
    const constant = inputs.findIndex((t) => outer.has(t));
    if (constant >= 0)
      return {
        path: `tensor ${constant} of the arguments`,
        before: 'a tensor of its own',
        now: 'a tensor that the function uses beside its arguments',
      };
    const inWeak = weak?.difference(inputs) ?? null;
    if (inWeak !== null) return renamed(inWeak);
    if (!areDistinct(slots))
      return { path: 'the arguments', before: 'different objects', now: 'partly the same' };
    return null;
  }

  /** The path of a tensor that the function uses beside its arguments. */
  outerPathOf(t: Tensor): string {
    return named(this.parts.tensors.find(({ tensor }) => tensor === t)?.path ?? OUTSIDE);
  }

  /** The tensors that the function uses beside its arguments. */
  outerTensors(): Tensor[] {
    return this.parts.tensors.map(({ tensor }) => tensor);
  }

  /** Everything that is compared, as sentences, each once. */
  sentences(): string[] {
    const { modes, args, rebound, receiver, modules, states, optimizers } = this.parts;
    const { tensors, grads, facts, closures, weak } = this.parts;
    const all = [
      ...modes.sentences(),
      ...args.sentences('arguments').map(named),
      ...(rebound?.sentences() ?? []),
      ...(receiver?.matcher.sentences('this') ?? []),
      ...modules.flatMap((module) => module.sentences()),
      ...states.flatMap((state) => state.sentences()),
      ...optimizers.flatMap((optimizer) => optimizer.sentences()),
      ...tensors.map(({ path, facts }) => `${path} is the same tensor: ${facts}`),
      ...grads.map(([, expected, path]) => `${path}.grad is ${expected}`),
      ...facts.map(({ path, expected }) => `${path} is ${textOf(expected)}`),
      ...(closures?.sentences() ?? []),
      ...(weak?.sentences() ?? []),
    ];
    return [...new Set(all.map(named))];
  }
}

const tensorOf = (owner: number | Tensor, inputs: readonly Tensor[]): Tensor =>
  typeof owner === 'number' ? (inputs[owner] as Tensor) : owner;

const textOf = (value: unknown): string => (isObject(value) ? 'the same object' : String(value));

/** An object that replaces another one of its kind is `another one`. */
function changed(path: string, expected: unknown, given: unknown): Difference {
  const [before, now] = [expected, given].map((value) =>
    value instanceof Tensor
      ? String(new TensorFacts(value))
      : isObject(value)
        ? shown(value)
        : String(value),
  ) as [string, string];
  return { path, before, now: before === now ? 'another one' : now };
}

/** `argument 0` for `arguments[0]`. */
export const named = (text: string): string => text.replace(/\barguments\[(\d+)\]/g, 'argument $1');

const renamed = (d: Difference): Difference => ({ ...d, path: named(d.path) });
