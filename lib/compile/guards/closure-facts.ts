/**
 * What guards compare of the variables that a function closes over. Objects are compared at each
 * call as arguments are. A variable that holds another value can be seen by a look alone: at the
 * second, the fourth and the eighth call, and then once a second.
 */
import { constructorOf, isNamespace, isOfLibrary } from '../../core/library-exports.js';
import { isObject, isUnchanging } from '../../core/plain-object.js';
import { Tensor } from '../../core/tensor.js';
import { ClosedOver, type Variable } from '../closures/closed-over.js';
import { isBuiltIn, namesIn } from '../closures/names.js';
import { hasBytes } from './container-matchers.js';
import type { Difference } from './facts.js';
import { firstOf, type Matcher, Same } from './matcher.js';
import { isModule, isOptimizer, stateOfBuiltIn } from './object-walk.js';

/** Items of an array, a map or a set, and bytes, up to which their contents are compared. */
const MOST_ITEMS = 1000;
const MOST_BYTES = 2 ** 16;

/** What a closed-over value is compared by; null if nothing of it is compared at calls. */
type MatcherOf = (value: object, path: string) => Matcher | null;

/** An object that a variable holds, unless it was collected. */
interface Contents {
  readonly path: string;
  readonly held: WeakRef<object>;
  /** Null while it is made, and if nothing is compared at calls. */
  matcher: Matcher | null;
}

/** When the variables of a function are looked at. */
export class ClosureClock {
  private calls = 0;
  private latest = Number.NEGATIVE_INFINITY;
  /** Counts looks; guards that have compared at this one need no other. */
  looks = 0;

  /** Counts a call. */
  tick(): void {
    const calls = ++this.calls;
    if (calls !== 2 && calls !== 4 && calls !== 8 && Date.now() - this.latest < 1000) return;
    this.latest = Date.now();
    this.looks++;
  }
}

export class ClosureFacts {
  private readonly closed: ClosedOver;
  private contents: Contents[] = [];
  /** Names in functions that runs call: what they change is not compared. */
  private readonly leftOut = new Set<string>();
  private looks = 0;

  /** `matcherOf`: makes the matcher of an object that a variable holds. */
  constructor(matcherOf: MatcherOf) {
    this.closed = new ClosedOver((path, value) => {
      if (!isObject(value)) return;
      // It stands before those of the objects in it, which refer to it.
      const contents: Contents = { path, held: new WeakRef(value), matcher: null };
      this.contents.push(contents);
      const matcher = matcherOf(value, path);
      if (!(matcher instanceof Same)) contents.matcher = matcher;
    });
  }

  /** Adds a function; `isGiven`: the program gave it to `compile`. */
  addFunction(fn: object, isGiven = false): void {
    this.closed.addFunction(fn, isGiven);
  }

  /** Adds a function; returns whether what it closes over can be seen. */
  isSeen(fn: object): boolean {
    this.closed.addFunction(fn);
    return this.closed.isOfProgram(fn);
  }

  /** Adds a module or an instance of a class; `isGiven`: as {@link addFunction}. */
  addMembers(value: object, path: string, isGiven = false): void {
    this.closed.addMembers(value, path, isGiven || isModule(value));
  }

  /**
   * Whether only the identity of a closed-over object counts: what the library, the language or
   * other packages made, and what is large.
   */
  isOpaque(value: object): boolean {
    if (Array.isArray(value)) return value.length > MOST_ITEMS;
    if (value instanceof Map || value instanceof Set) return value.size > MOST_ITEMS;
    if (value instanceof Tensor || isUnchanging(value)) return false;
    if (hasBytes(value)) return value.byteLength > MOST_BYTES;
    if (stateOfBuiltIn(value) !== null) return false;
    const constructor = constructorOf(value);
    if (constructor === Object || constructor === null)
      return '__esModule' in value || isNamespace(value);
    // The settings of an optimizer are compared where its step is taken.
    if (isOptimizer(value)) return true;
    return isOfLibrary(value) || isBuiltIn(constructor) || !this.closed.isOfProgram(constructor);
  }

  /** Leaves out what a function may change that each run of the graph calls. */
  leaveOut(fn: object): void {
    for (const name of namesIn(fn)) this.leftOut.add(name);
  }

  /** Ends the collection. Null if there is nothing to compare. */
  finish(): ClosureFacts | null {
    const isLeftOut = (path: string): boolean => this.leftOut.has(path);
    this.closed.finish(isLeftOut);
    this.contents = this.contents.filter(
      ({ path, matcher }) => matcher !== null && !isLeftOut(path),
    );
    return this.closed.isEmpty && this.contents.length === 0 ? null : this;
  }

  /** A variable to which the functions seem to assign; null for none. */
  get mayAssignTo(): string | null {
    return this.closed.mayAssignTo;
  }

  /** The path of a variable to which a function seems to assign; null for none. */
  assignedIn(fn: object): string | null {
    return this.closed.assignedIn(fn);
  }

  /** The path of a variable that has another value than at the start; null if none has. */
  reboundVariable(): string | null {
    return this.closed.changed()?.[0].path ?? null;
  }

  /** Whether all is as it was; variables are looked at if the clock says so. */
  matches({ looks }: ClosureClock): boolean {
    const { contents } = this;
    for (let i = 0; i < contents.length; i++) {
      const { matcher, held } = contents[i] as Contents;
      if (matcher?.matches(held.deref()) === false) return false;
    }
    if (looks === this.looks) return true;
    if (this.closed.changed() !== null) return false;
    this.looks = looks;
    return true;
  }

  /** The first difference, with a look at the variables. */
  difference(): Difference | null {
    return (
      firstOf(this.contents, ({ path, matcher, held }) =>
        this.leftOut.has(path) ? null : (matcher?.difference(path, held.deref()) ?? null),
      ) ?? differenceOf(this.closed.changed())
    );
  }

  sentences(): string[] {
    return [
      ...this.contents.flatMap(({ path, matcher }) => matcher?.sentences(path) ?? []),
      ...this.closed.variables
        .filter(({ value }) => !isObject(value))
        .flatMap(({ path, value }) => new Same(value).sentences(path)),
    ];
  }
}

const differenceOf = (changed: readonly [Variable, unknown] | null): Difference | null =>
  changed && new Same(changed[0].value).difference(changed[0].path, changed[1]);
