/** The objects that compiled functions are called on, their `this`. */
import { isObject } from '../core/plain-object.js';

type AnyFunction = (...args: unknown[]) => unknown;

const ARROW = /^(async\s*)?\(|^(async\s+)?[\w$]+\s*=>/;

/**
 * Whether a function may use the object that it is called on. Modules do not: they are called. An
 * arrow function has the `this` of where it stands.
 */
function usesReceiver(fn: AnyFunction): boolean {
  if ('forward' in fn) return false;
  const source = Function.prototype.toString.call(fn);
  return !ARROW.test(source) && /\b(this|super)\b/.test(source);
}

/**
 * What is kept for each object that a function is called on. A function that does not use it is one
 * for all of them, so that the state of an object that only holds it is not compared.
 */
export class ByReceiver<T> {
  private readonly objects = new WeakMap<object, T>();
  private readonly others = new Map<unknown, T>();
  private readonly fn: AnyFunction;
  private readonly make: (fn: AnyFunction, receiver: object | null) => T;
  private readonly usesReceiver: boolean;

  /** `make` gets the function, bound to the object. */
  constructor(fn: AnyFunction, make: (fn: AnyFunction, receiver: object | null) => T) {
    this.fn = fn;
    this.make = make;
    this.usesReceiver = usesReceiver(fn);
  }

  of(receiver: unknown): T {
    const used = this.usesReceiver ? receiver : undefined;
    const map: Pick<Map<unknown, T>, 'get' | 'set'> = isObject(used)
      ? (this.objects as WeakMap<WeakKey, T> as never)
      : this.others;
    let found = map.get(used);
    if (found === undefined) {
      const bound = used === undefined ? this.fn : boundTo(this.fn, used);
      found = this.make(bound, isObject(used) ? used : null);
      map.set(used, found);
    }
    return found;
  }
}

function boundTo(fn: AnyFunction, receiver: unknown): AnyFunction {
  return Object.defineProperty(fn.bind(receiver), 'name', { value: fn.name }) as AnyFunction;
}
