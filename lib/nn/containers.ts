/**
 * Containers of modules and parameters. Their items are properties named by position or key, as in
 * PyTorch.
 */

import { ArgumentError } from '../core/errors.js';
import { checkNumber, listOf, unexpected } from '../core/options.js';
import type { Tensor } from '../core/tensor.js';
import { quoted } from './members.js';
import { type AnyModule, Module } from './module.js';
import { Parameter } from './parameter.js';

/** The item at a position; negative ones count from the end. @throws ArgumentError */
function itemAt<T>(kind: string, list: readonly T[], index: number): T {
  checkNumber(`${kind}.at`, 'index', index, { whole: true });
  const found = list[index < 0 ? index + list.length : index];
  if (found === undefined) {
    const { length } = list;
    const range =
      length === 0 ? 'no index, it is empty' : `an index from ${-length} to ${length - 1}`;
    throw new ArgumentError(`${kind}: expected ${range}, got ${index}`, { index });
  }
  return found;
}

/**
 * Values by name: an object, or pairs of name and value such as a Map. Only pairs keep the order of
 * names that are whole numbers.
 */
export type Named<T> = Readonly<Record<string, T>> | Iterable<readonly [name: string, value: T]>;

function pairsOf<T>(op: string, named: Named<T>): readonly (readonly [string, T])[] {
  if (typeof named !== 'object' || named === null)
    throw unexpected(op, 'the items', 'an object, or pairs of a name and a value', named);
  if (!(Symbol.iterator in named)) return Object.entries(named);
  const pairs = [...(named as Iterable<readonly [string, T]>)];
  for (const pair of pairs)
    if (!Array.isArray(pair) || typeof pair[0] !== 'string')
      throw unexpected(op, 'each item', 'a pair of a name and a value', pair);
  return pairs;
}

/**
 * Runs modules one after another, each on the result of the one before.
 *
 * @example
 * const model = new nn.Sequential(new nn.Linear(8, 64), new nn.ReLU(), new nn.Linear(64, 1));
 * model(randn([16, 8])).shape; // [16, 1]
 */
export class Sequential extends Module {
  constructor(...modules: Module[] | [Named<Module>]) {
    super();
    const [first] = modules;
    const isNamed = typeof first === 'object' && first !== null;
    const named = isNamed
      ? pairsOf('Sequential', first as Named<Module>)
      : (modules as Module[]).map((m, i) => [String(i), m] as const);
    for (const [name, module] of named) this.registerModule(name, module);
  }

  forward(input: Tensor): Tensor {
    let x = input;
    for (const module of this) x = module(x);
    return x;
  }

  /** Number of modules. */
  override get length(): number {
    return [...this.children()].length;
  }

  /** The module at a position; negative ones count from the end. @throws ArgumentError */
  at(index: number): Module {
    return itemAt('Sequential', [...this], index);
  }

  /** Appends a module. */
  append(module: Module): this {
    this.registerModule(String(this.length), module);
    return this;
  }

  /** Appends modules. */
  extend(modules: Iterable<Module>): this {
    for (const module of listOf('Sequential.extend', 'modules', 'modules to iterate over', modules))
      this.append(module);
    return this;
  }

  [Symbol.iterator](): IterableIterator<Module> {
    return ([...this.children()] as Module[]).values();
  }
}

/**
 * A list of modules. It has no `forward`.
 *
 * @example
 * class Net extends nn.Module {
 *   blocks = new nn.ModuleList([new nn.Linear(8, 8), new nn.Linear(8, 8)]);
 *   forward(x: Tensor) {
 *     for (const block of this.blocks) x = block(x).relu();
 *     return x;
 *   }
 * }
 * [...new Net().parameters()].length; // 4
 */
export class ModuleList<M extends AnyModule = Module> extends Module<never, never> {
  constructor(modules: Iterable<M> = []) {
    super();
    this.extend(modules);
  }

  forward(): never {
    throw new ArgumentError('ModuleList has no forward; call its modules');
  }

  /** Number of modules. */
  override get length(): number {
    return [...this.children()].length;
  }

  /** The module at a position; negative ones count from the end. @throws ArgumentError */
  at(index: number): M {
    return itemAt('ModuleList', [...this], index);
  }

  /** Appends a module. */
  append(module: M): this {
    this.registerModule(String(this.length), module);
    return this;
  }

  /** Appends modules. */
  extend(modules: Iterable<M>): this {
    for (const module of listOf('ModuleList', 'modules', 'modules to iterate over', modules))
      this.append(module);
    return this;
  }

  /** Inserts a module before the one at `index`. */
  insert(index: number, module: M): this {
    checkNumber('ModuleList.insert', 'index', index, { whole: true });
    const list = [...this];
    list.splice(index, 0, module);
    list.forEach((m, i) => this.registerModule(String(i), m));
    return this;
  }

  [Symbol.iterator](): IterableIterator<M> {
    return ([...this.children()] as unknown[] as M[]).values();
  }
}

/** Modules by name. It has no `forward`. */
export class ModuleDict<M extends AnyModule = Module> extends Module<never, never> {
  constructor(modules: Named<M> = {}) {
    super();
    this.update(modules);
  }

  forward(): never {
    throw new ArgumentError('ModuleDict has no forward; call its modules');
  }

  /** Adds or replaces a module. @throws ArgumentError for a name with a dot */
  set(name: string, module: M): this {
    this.registerModule(name, module);
    return this;
  }

  /** Adds or replaces modules. */
  update(modules: Named<M>): this {
    for (const [name, module] of pairsOf('ModuleDict', modules)) this.set(name, module);
    return this;
  }

  /** The module of a name. @throws ArgumentError if there is no such module */
  get(name: string): M {
    const found = this.entries().find(([key]) => key === name);
    if (found === undefined)
      throw new ArgumentError(`ModuleDict: no module ${quoted(name)}`, { name });
    return found[1];
  }

  /** Whether there is a module of this name. */
  has(name: string): boolean {
    return this.keys().includes(name);
  }

  /** Names, in order. */
  keys(): string[] {
    return this.entries().map(([name]) => name);
  }

  /** Modules, in order. */
  values(): M[] {
    return this.entries().map(([, module]) => module);
  }

  /** Names and modules, in order. */
  entries(): [string, M][] {
    return [...this.namedChildren()] as unknown as [string, M][];
  }
}

/** A line such as `(0): Parameter containing: [float32 of size 2x3]` for each parameter. */
function describeParameters(owner: AnyModule): string {
  return [...owner.namedParameters('', { recurse: false })]
    .map(
      ([name, p]) =>
        `(${name}): Parameter containing: [${p.dtype.name} of size ` +
        `${p.sizes.join('x') || 'scalar'}]`,
    )
    .join('\n');
}

/** A list of parameters. */
export class ParameterList extends Module<never, never> {
  constructor(parameters: Iterable<Tensor> = []) {
    super();
    this.extend(parameters);
  }

  forward(): never {
    throw new ArgumentError('ParameterList has no forward; use its parameters');
  }

  /** Number of parameters. */
  override get length(): number {
    return [...this].length;
  }

  /** The parameter at a position; negative ones count from the end. @throws ArgumentError */
  at(index: number): Parameter {
    return itemAt('ParameterList', [...this], index);
  }

  /** Appends a parameter. A tensor is converted to one. */
  append(parameter: Tensor): this {
    this.registerParameter(
      String(this.length),
      parameter instanceof Parameter ? parameter : new Parameter(parameter),
    );
    return this;
  }

  /** Appends parameters. */
  extend(parameters: Iterable<Tensor>): this {
    for (const parameter of listOf(
      'ParameterList',
      'parameters',
      'tensors to iterate over',
      parameters,
    ))
      this.append(parameter);
    return this;
  }

  override extraRepr(): string {
    return describeParameters(this);
  }

  [Symbol.iterator](): IterableIterator<Parameter> {
    const own = this.namedParameters('', { recurse: false, removeDuplicate: false });
    return Array.from(own, ([, p]) => p).values();
  }
}

/** Parameters by name. */
export class ParameterDict extends Module<never, never> {
  constructor(parameters: Named<Tensor> = {}) {
    super();
    this.update(parameters);
  }

  forward(): never {
    throw new ArgumentError('ParameterDict has no forward; use its parameters');
  }

  /**
   * Adds or replaces a parameter. A tensor is converted to one. @throws ArgumentError for a name
   * with a dot
   */
  set(name: string, parameter: Tensor): this {
    this.registerParameter(
      name,
      parameter instanceof Parameter ? parameter : new Parameter(parameter),
    );
    return this;
  }

  /** Adds or replaces parameters. */
  update(parameters: Named<Tensor>): this {
    for (const [name, parameter] of pairsOf('ParameterDict', parameters)) this.set(name, parameter);
    return this;
  }

  /** The parameter of a name. @throws ArgumentError if there is no such parameter */
  get(name: string): Parameter {
    const found = this.entries().find(([key]) => key === name);
    if (found === undefined)
      throw new ArgumentError(`ParameterDict: no parameter ${quoted(name)}`, { name });
    return found[1];
  }

  /** Whether there is a parameter of this name. */
  has(name: string): boolean {
    return this.keys().includes(name);
  }

  /** Names, in order. */
  keys(): string[] {
    return this.entries().map(([name]) => name);
  }

  /** Names and parameters, in order. */
  entries(): [string, Parameter][] {
    return [...this.namedParameters('', { recurse: false, removeDuplicate: false })];
  }

  override extraRepr(): string {
    return describeParameters(this);
  }
}
