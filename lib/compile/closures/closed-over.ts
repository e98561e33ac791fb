/**
 * The variables that a function can reach beside its arguments: those that it closes over, those of
 * the functions among them and of methods, and private fields.
 */
import { isExported } from '../../core/library-exports.js';
import { isObject } from '../../core/plain-object.js';
import { type Bound, privateFieldsOf } from './inspector.js';
import { assignsToPrivateFields, isBuiltIn, namesAssignedIn, privateNamesIn } from './names.js';
import { Round } from './program.js';

/** A variable or a private field, as it was when it was found. Objects may be collected. */
export class Variable {
  readonly name: string;
  /** `n`, or `model.#scale`. */
  readonly path: string;
  private readonly held: unknown;

  constructor(name: string, path: string, value: unknown) {
    this.name = name;
    this.path = path;
    this.held = isObject(value) ? new WeakRef(value) : value;
  }

  /** Undefined for an object that is gone. */
  get value(): unknown {
    return this.held instanceof WeakRef ? this.held.deref() : this.held;
  }
}

/** What is looked at again: a function or an object with private fields. */
interface Source {
  readonly variables: readonly Variable[];
  look(round: Round): ReadonlyMap<string, unknown> | null;
}

/** Functions and objects that are looked at for one capture, at most. */
const MOST_SOURCES = 200;

/** Collects variables during a capture, and compares them later. */
export class ClosedOver {
  private readonly seen = new Set<object>();
  private sources: Source[] = [];
  private round: Round = new Round();
  private found: (path: string, value: unknown) => void;

  /** `found` is called for each variable. */
  constructor(found: (path: string, value: unknown) => void) {
    this.found = found;
  }

  /** A variable to which one of the functions seems to assign, or a class with private fields. */
  mayAssignTo: string | null = null;

  /** Whether there are none. */
  get isEmpty(): boolean {
    return this.sources.length === 0;
  }

  /**
   * Adds what a function closes over, if it is one of the program.
   *
   * @param isGiven - whether the program gave it to `compile`
   */
  addFunction(fn: object, isGiven = false): void {
    const bound = this.round.boundOf(fn);
    if (bound !== null) {
      this.addBound(fn, bound, isGiven);
      return;
    }
    // The library calls the methods of other classes that extend its own, whenever they are due.
    if (!isGiven && isExported(Object.getPrototypeOf(fn) as object)) return;
    if (this.isKnown(fn) || !this.round.isOfProgram(fn, isGiven)) return;
    const names = this.add(
      (round) => round.variablesOf(fn),
      (name) => name,
    );
    if (names.length === 0 || this.mayAssignTo !== null) return;
    const assigned = namesAssignedIn(fn);
    this.mayAssignTo = names.find((name) => assigned.has(name)) ?? null;
  }

  /** Adds the function that a bound one calls, its `this` and its first arguments. */
  private addBound(fn: object, { target, receiver, args }: Bound, isGiven: boolean): void {
    this.addFunction(target, isGiven);
    if (this.isKnown(fn) || !this.isOfProgram(target)) return;
    const { name } = target as { readonly name: string };
    this.found(`this of ${name}`, receiver);
    for (const [i, arg] of args.entries()) this.found(`argument ${i} bound to ${name}`, arg);
  }

  /**
   * Adds what the methods of an object's classes close over, and its private fields. `isGiven`: the
   * program gave the object, so its class is the program's.
   */
  addMembers(object: object, path: string, isGiven: boolean): void {
    if (this.isKnown(object)) return;
    const privateNames = new Set<string>();
    const held = new WeakRef(object);
    for (const constructor of classesOf(object)) {
      if (!this.isOfProgram(constructor, isGiven)) break;
      for (const name of privateNamesIn(constructor)) privateNames.add(name);
      if (assignsToPrivateFields(constructor))
        this.mayAssignTo ??= `private fields of ${(constructor as { readonly name: string }).name}`;
      this.addFunction(constructor, isGiven); // its text has all methods
    }
    if (privateNames.size === 0) return;
    const isOwn = ([name]: readonly [string, unknown]): boolean => privateNames.has(name);
    this.add(
      () => {
        const now = held.deref();
        const fields = now === undefined ? null : privateFieldsOf(now);
        return fields === null ? null : new Map([...fields].filter(isOwn));
      },
      (name) => `${path}.${name}`,
    );
  }

  /** Whether a class is the program's own. */
  isOfProgram(constructor: object, isGiven = false): boolean {
    return this.round.isOfProgram(constructor, isGiven);
  }

  private isKnown(value: object): boolean {
    if (this.seen.has(value) || this.sources.length >= MOST_SOURCES) return true;
    this.seen.add(value);
    return false;
  }

  private add(look: Source['look'], pathOf: (name: string) => string): readonly string[] {
    const now = look(this.round);
    if (now === null || now.size === 0) return [];
    const variables = [...now].map(([name, value]) => new Variable(name, pathOf(name), value));
    this.sources.push({ variables, look });
    for (const [name, value] of now) this.found(pathOf(name), value);
    return [...now.keys()];
  }

  /** The path of a variable to which the text of a function seems to assign; null for none. */
  assignedIn(fn: object): string | null {
    const names = namesAssignedIn(fn);
    return this.variables.find(({ name }) => names.has(name))?.path ?? null;
  }

  /** Ends the collection. `isLeftOut`: variables that are not compared. */
  finish(isLeftOut: (path: string) => boolean): void {
    this.round = new Round();
    this.seen.clear();
    this.found = () => {};
    this.sources = this.sources
      .map(({ variables, look }) => ({
        variables: variables.filter(({ path }) => !isLeftOut(path)),
        look,
      }))
      .filter(({ variables }) => variables.length > 0);
  }

  /** The first variable that has another value now, with that. */
  changed(): readonly [before: Variable, now: unknown] | null {
    const round = new Round();
    for (const { variables, look } of this.sources) {
      const now = look(round);
      if (now === null) continue;
      for (const variable of variables) {
        const value = now.get(variable.name);
        if (!Object.is(value, variable.value)) return [variable, value];
      }
    }
    return null;
  }

  /** The variables whose values are compared by looking again. */
  get variables(): readonly Variable[] {
    return this.sources.flatMap(({ variables }) => variables);
  }
}

/** The classes of an object up to the first that the library exports or the language has. */
function classesOf(object: object): object[] {
  const classes: object[] = [];
  let prototype = Object.getPrototypeOf(object) as object | null;
  for (; prototype !== null; prototype = Object.getPrototypeOf(prototype) as object | null) {
    const constructor = Object.getOwnPropertyDescriptor(prototype, 'constructor')?.value as unknown;
    if (typeof constructor !== 'function') break;
    if (isExported(constructor) || isBuiltIn(constructor)) break;
    classes.push(constructor);
  }
  return classes;
}
