/**
 * Names of PyTorch that are not there: a use of one throws an error that says what to use instead,
 * and its type says the same in an editor. The folder absent-names has them; `npm run generate`
 * writes it from scripts/absent-names.
 */
import { AttributeError, IndexError } from './errors.js';
import { snakeCase } from './name-case.js';

declare const text: unique symbol;

/** The type of a name that is not there. Its argument says what to use instead. */
export interface Absent<Text extends string> {
  /** What to use instead. */
  readonly [text]: Text;
}

const kept = new WeakMap<object, string>();

/** What messages say of a value that stands for an absent name; else undefined. @internal */
export const absenceOf = (value: unknown): string | undefined => kept.get(value as object);

/** Stands for an absent function or class: calls and `new` throw. @internal */
export function absent<const Name extends string, const Advice extends string>(
  name: Name,
  advice: Advice,
): Absent<`${Name} ${Advice}`> {
  // biome-ignore lint/complexity/useArrowFunction: arrow functions refuse `new` with other words.
  const standIn = function (): never {
    throw new AttributeError(`${name} ${advice}`, { name });
  };
  kept.set(standIn, `${name}, which ${advice}`);
  return standIn as unknown as Absent<`${Name} ${Advice}`>;
}

/** What others look for in any object, without a mistake of the program. */
const probes: ReadonlySet<string> = new Set(['then', 'toJSON', 'asymmetricMatch', '$$typeof']);

/** Stands for an absent namespace: reads of what it would have throw, too. @internal */
export function absentNamespace<const Name extends string, const Advice extends string>(
  name: Name,
  advice: Advice,
): Absent<`${Name} ${Advice}`> {
  const standIn = absent(name, advice) as unknown as () => never;
  const namespace = new Proxy(standIn, {
    get: (target, key) =>
      typeof key === 'symbol' || key in target || probes.has(key)
        ? Reflect.get(target, key)
        : target(),
  });
  kept.set(namespace, `${name}, which ${advice}`);
  return namespace as unknown as Absent<`${Name} ${Advice}`>;
}

/** Adds a property that throws whenever it is read or written. */
function refuse(prototype: object, key: PropertyKey, get: () => never, set: () => never): void {
  Object.defineProperty(prototype, key, { get, set, configurable: true, enumerable: false });
}

/** Adds methods that stand for absent ones. @internal */
export function addAbsent(prototype: object, methods: Readonly<Record<string, object>>): void {
  for (const [name, value] of Object.entries(methods))
    Object.defineProperty(prototype, name, {
      value,
      writable: true,
      configurable: true,
      enumerable: false,
    });
}

/**
 * Makes PyTorch's spelling of the members of a class an error that has JavaScript's:
 * `requires_grad` would else become a new property, to which nothing listens. @internal
 */
export function refuseSnakeCase(owner: string, prototype: object): void {
  for (const name of Object.getOwnPropertyNames(prototype)) {
    if (!/[A-Z]/.test(name)) continue; // most names, and this is far cheaper
    const spelled = snakeCase(name);
    if (spelled === name) continue;
    const value = Object.getOwnPropertyDescriptor(prototype, name)?.value;
    if (absenceOf(value) !== undefined) continue;
    const standIn = absent(
      `${owner}.${spelled}`,
      `is not there: the name is in camelCase, ${name}`,
    ) as unknown as () => never;
    if (typeof value === 'function') addAbsent(prototype, { [spelled]: standIn });
    else refuse(prototype, spelled, standIn, standIn);
  }
}

/** Loops begin at 0, so a higher index is hardly the first one. */
const INDICES = 32;

/**
 * Makes `tensor[i]` an error: a read would give undefined, and a write would add a property. These
 * are accessors, because a Proxy among the prototypes makes each `instanceof` that fails ten times
 * as slow, and an `await` of a tensor twice. @internal
 */
export function refuseIndices(prototype: object): void {
  for (let index = -1; index < INDICES; index++) {
    const fail = (instead: string) => (): never => {
      throw new IndexError(`tensor[${index}]: JavaScript cannot index tensors; ${instead}`, {
        index,
      });
    };
    refuse(
      prototype,
      index,
      fail(`read x.select(0, ${index}), x.slice(0, from, to) or x.index([ids])`),
      fail(`write x.select(0, ${index}).fill_(value), or x.indexPut_([ids], values)`),
    );
  }
}
