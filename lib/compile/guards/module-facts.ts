/**
 * What guards compare of a module: its attributes, the methods of its classes, and what the library
 * counts changes of: the names of its attributes, its hooks and its training flag. The latter are
 * compared only after a change was counted.
 */

import { CHANGES, moduleChanges } from '../../core/module-changes.js';
import { shown } from '../../core/options.js';
import { Tensor } from '../../core/tensor.js';
import { type Difference, propertyPath } from './facts.js';
import { firstOf, type Matcher, Same } from './matcher.js';
import type { MatcherFactory } from './matcher-factory.js';
import type { ModuleLike } from './object-walk.js';
import { TensorFacts } from './tensor-facts.js';

type Attributes = Record<string, unknown>;
type Counted = { readonly [CHANGES]: number };

export class ModuleFacts {
  readonly path: string;
  readonly module: object & ModuleLike;
  private readonly attributes: readonly string[];
  /** Attributes that are compared by identity, and methods. */
  private readonly names: string[] = [];
  private readonly expected: unknown[] = [];
  /** Attributes that are plain objects or instances. */
  private readonly deep: [name: string, matcher: Matcher][] = [];
  private readonly matchers = new Map<string, Matcher>();
  /** Tensors that the function replaces and does not use: their identity does not count. */
  private readonly overwritten: (readonly [name: string, facts: TensorFacts])[] = [];
  private readonly isTraining: boolean;
  private readonly hooks: readonly unknown[];
  private readonly order: readonly string[] | null;
  private changes: number;

  /** `isInput`: whether an attribute is compared as an input of the graph. */
  constructor(
    module: object & ModuleLike,
    path: string,
    factory: MatcherFactory,
    isInput: (name: string) => boolean,
  ) {
    this.path = path;
    this.module = module;
    this.attributes = Object.keys(module);
    for (const name of this.attributes) {
      if (isInput(name)) continue;
      const value = (module as unknown as Attributes)[name];
      const matcher = factory.value(value, propertyPath(path, name));
      this.matchers.set(name, matcher);
      if (matcher instanceof Same) this.expect(name, value);
      else this.deep.push([name, matcher]);
    }
    for (const name of methodsOf(module))
      if (!this.matchers.has(name)) this.expect(name, (module as unknown as Attributes)[name]);
    this.isTraining = module.trainingFlag;
    this.hooks = hooksOf(module);
    this.order = orderOf(module);
    this.changes = (module as unknown as Counted)[CHANGES];
  }

  /** Compares only the metadata of a tensor, because each run replaces the tensor. */
  overwrite(name: string): void {
    const at = this.names.indexOf(name);
    const tensor = this.expected[at];
    if (at < 0 || !(tensor instanceof Tensor)) return;
    this.names.splice(at, 1);
    this.expected.splice(at, 1);
    this.matchers.delete(name);
    this.overwritten.push([name, new TensorFacts(tensor)]);
  }

  private expect(name: string, value: unknown): void {
    this.names.push(name);
    this.expected.push(value);
  }

  /**
   * `isCounted`: whether a change of any module was counted since the latest call. `inputs`: the
   * tensors of the call.
   */
  matches(isCounted: boolean, inputs: readonly Tensor[]): boolean {
    const { names, expected, deep, overwritten } = this;
    const module = this.module as unknown as Attributes;
    if (isCounted && !this.matchesCounted()) return false;
    for (let i = 0; i < names.length; i++)
      if (!Object.is(module[names[i] as string], expected[i])) return false;
    for (let i = 0; i < overwritten.length; i++) {
      const [name, facts] = overwritten[i] as [string, TensorFacts];
      if (!matchesOverwritten(module[name], facts, inputs)) return false;
    }
    for (let i = 0; i < deep.length; i++) {
      const [name, matcher] = deep[i] as [string, Matcher];
      if (!matcher.matches(module[name])) return false;
    }
    return true;
  }

  private matchesCounted(): boolean {
    const changes = (this.module as unknown as Counted)[CHANGES];
    if (changes === this.changes) return true;
    if (this.differenceOfCounted() !== null) return false;
    this.changes = changes;
    return true;
  }

  private differenceOfCounted(): Difference | null {
    const { module, path } = this;
    const facts: readonly (readonly [string, readonly unknown[], readonly unknown[]])[] = [
      [`${path}.training`, [this.isTraining], [module.trainingFlag]],
      [`the list of attributes of ${path}`, this.attributes, Object.keys(module)],
      [`the order of the members of ${path}`, this.order ?? [], orderOf(module) ?? []],
    ];
    for (const [what, before, now] of facts)
      if (!sameItems(before, now))
        return { path: what, before: before.join(', '), now: now.join(', ') };
    const hooks = hooksOf(module);
    if (sameItems(this.hooks, hooks)) return null;
    const [before, now] = [this.hooks, hooks].map(numberOfHooks);
    return {
      path: `the number of hooks of ${path}`,
      before: String(before),
      now: before === now ? `${now} others` : String(now),
    };
  }

  /** The first attribute that differs. */
  difference(): Difference | null {
    const module = this.module as unknown as Attributes;
    return (
      firstOf([...this.matchers], ([name, matcher]) =>
        matcher.difference(propertyPath(this.path, name), module[name]),
      ) ??
      this.differenceOfCounted() ??
      firstOf(this.overwritten, ([name, facts]) => {
        const value = module[name];
        const path = propertyPath(this.path, name);
        if (!(value instanceof Tensor)) return { path, before: String(facts), now: shown(value) };
        return facts.matches(value) ? null : facts.difference(path, value);
      }) ??
      firstOf(this.names, (name, i) =>
        Object.is(module[name], this.expected[i])
          ? null
          : { path: `${this.path}.${name}`, before: 'a method', now: 'another function' },
      )
    );
  }

  sentences(): string[] {
    const { path, isTraining, hooks } = this;
    const count = numberOfHooks(hooks);
    return [
      `${path}.training is ${isTraining}`,
      ...this.overwritten.map(
        ([name, facts]) => `${propertyPath(path, name)} is any tensor that is ${facts}`,
      ),
      `${path} has ${count === 0 ? 'no' : count} hook${count === 1 ? '' : 's'}`,
      ...[...this.matchers].flatMap(([name, matcher]) =>
        matcher.sentences(propertyPath(path, name)),
      ),
    ];
  }
}

/** Whether any change of a module was counted since `count`. */
export const isCountedSince = (count: number): boolean => moduleChanges.count !== count;

const matchesOverwritten = (
  value: unknown,
  facts: TensorFacts,
  inputs: readonly Tensor[],
): boolean => value instanceof Tensor && facts.matches(value) && !inputs.includes(value);

/** The hooks by kind; a Map ends each kind. */
const hooksOf = ({ hooks }: ModuleLike): readonly unknown[] =>
  Object.values(hooks).flatMap((each) => [...each.values(), each]);

/** The functions that a module calls before and after its own. Runs may call those of backward. */
export const forwardHooksOf = ({ hooks }: ModuleLike): readonly object[] =>
  ['forwardPre', 'forward', 'always'].flatMap((kind) => [
    ...((hooks[kind] as ReadonlyMap<number, object> | undefined)?.values() ?? []),
  ]);

const numberOfHooks = (hooks: readonly unknown[]): number =>
  hooks.filter((hook) => !(hook instanceof Map)).length;

const orderOf = (module: object): readonly string[] | null =>
  (module as { memberOrder?: string[] | null }).memberOrder ?? null;

const sameItems = (a: readonly unknown[], b: readonly unknown[]): boolean =>
  a.length === b.length && a.every((item, i) => Object.is(item, b[i]));

/** Methods that no forward calls for its result. */
const DESCRIPTIONS: ReadonlySet<string> = new Set(['constructor', 'extraRepr', 'resetParameters']);
const methods = new WeakMap<object, readonly string[]>();

/** The methods of the classes between a module and the base class of modules. */
function methodsOf(module: object): readonly string[] {
  const prototype = Object.getPrototypeOf(module) as object | null;
  if (prototype === null || Object.hasOwn(prototype, 'registerForwardHook')) return [];
  let known = methods.get(prototype);
  if (known === undefined) {
    const own = Object.entries(Object.getOwnPropertyDescriptors(prototype)).flatMap(
      ([name, { value }]) => (typeof value === 'function' && !DESCRIPTIONS.has(name) ? [name] : []),
    );
    known = [...new Set([...own, ...methodsOf(prototype)])];
    methods.set(prototype, known);
  }
  return known;
}
