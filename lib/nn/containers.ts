/** Containers: Sequential, ModuleList, ModuleDict. Children are properties named by position or key. */
import { ArgumentError } from '../core/errors.js';
import type { Tensor } from '../core/tensor.js';
import { type AnyModule, Module } from './module.js';

/** Modules one after another. */
export class Sequential extends Module {
  constructor(...modules: Module[]) {
    super();
    modules.forEach((module, i) => {
      this.registerModule(String(i), module as unknown as AnyModule);
    });
  }

  forward(input: Tensor): Tensor {
    let x = input;
    for (const module of this) x = module(x);
    return x;
  }

  override get length(): number {
    return [...this.children()].length;
  }

  /** The module at a position; negative ones count from the end. @throws ArgumentError */
  at(index: number): Module {
    const list = [...this];
    const found = list[index < 0 ? index + list.length : index];
    if (!found) throw new ArgumentError(`Sequential: no module at ${index}, there are ${list.length}`, { index });
    return found;
  }

  append(module: Module): this {
    this.registerModule(String(this.length), module as unknown as AnyModule);
    return this;
  }

  *[Symbol.iterator](): Generator<Module> {
    for (const child of this.children()) yield child as unknown as Module;
  }
}

/** A list of modules, without a forward of its own. */
export class ModuleList<M extends AnyModule = Module> extends Module<never[], never> {
  constructor(modules: Iterable<M> = []) {
    super();
    for (const module of modules) this.append(module);
  }

  forward(): never {
    throw new ArgumentError('ModuleList has no forward; call its modules');
  }

  override get length(): number {
    return [...this.children()].length;
  }

  /** The module at a position; negative ones count from the end. @throws ArgumentError */
  at(index: number): M {
    const list = [...this];
    const found = list[index < 0 ? index + list.length : index];
    if (!found) throw new ArgumentError(`ModuleList: no module at ${index}, there are ${list.length}`, { index });
    return found;
  }

  append(module: M): this {
    this.registerModule(String(this.length), module);
    return this;
  }

  *[Symbol.iterator](): Generator<M> {
    for (const child of this.children()) yield child as unknown as M;
  }
}

/** Modules by name, without a forward of its own. */
export class ModuleDict<M extends AnyModule = Module> extends Module<never[], never> {
  constructor(modules: Record<string, M> = {}) {
    super();
    for (const [name, module] of Object.entries(modules)) this.set(name, module);
  }

  forward(): never {
    throw new ArgumentError('ModuleDict has no forward; call its modules');
  }

  set(name: string, module: M): this {
    this.registerModule(name, module);
    return this;
  }

  /** @throws ArgumentError if there is no such module */
  get(name: string): M {
    const found = (this as unknown as Record<string, M | undefined>)[name];
    if (!(found instanceof Module)) throw new ArgumentError(`ModuleDict: no module "${name}"`, { name });
    return found;
  }

  keys(): string[] {
    return [...this.namedChildren()].map(([name]) => name);
  }
}
