/** What the entries of the library export: a compiler looks into code of the program alone. */
import { isObject, isPlain } from './plain-object.js';

const declared: object[] = [];
let exported: WeakSet<object> | null = null;

/** An entry declares its namespace; what that has is looked at only when it is needed. @internal */
export function declareExports(namespace: object): void {
  declared.push(namespace);
  exported = null;
}

const made = new WeakSet<object>();

/** Marks a function that the library made and gave to the program; returns it. @internal */
export function declareMade<F extends object>(fn: F): F {
  made.add(fn);
  return fn;
}

/** Whether a function or a class is one that the library exports or {@link declareMade}. @internal */
export function isExported(value: object): boolean {
  if (made.has(value)) return true;
  if (exported === null) {
    exported = new WeakSet();
    for (const namespace of declared) addAll(namespace, exported);
  }
  return exported.has(value);
}

function addAll(namespace: object, into: WeakSet<object>): void {
  for (const value of Object.values(namespace)) {
    if (typeof value === 'function') into.add(value);
    else if (isObject(value) && (isNamespace(value) || isPlain(value)) && !into.has(value)) {
      into.add(value);
      addAll(value, into);
    }
  }
}

/** Whether an object is what `import * as name` gives. @internal */
export const isNamespace = (value: object): boolean =>
  Object.prototype.toString.call(value) === '[object Module]';

/** The class of a value; null if it names none. @internal */
export function constructorOf(value: object): object | null {
  const { constructor } = value as { constructor?: unknown };
  return typeof constructor === 'function' ? constructor : null;
}

/** Whether a class of the library made a value, or one that extends such a class. @internal */
export function isOfLibrary(value: object): boolean {
  for (let each = Object.getPrototypeOf(value) as object | null; each !== null; ) {
    const constructor = constructorOf(each);
    if (constructor !== null && isExported(constructor)) return true;
    each = Object.getPrototypeOf(each) as object | null;
  }
  return false;
}
