/**
 * Declares each public function once, in Python's notation: `'sum(input, /, dim, keepdim, *,
 * dtype)'`. Parameters before `/` are given by position, those after `*` as options, and those
 * between by position or as options: `sum(x, 1, true)`, `sum(x, 1, { keepdim: true })` and `sum(x,
 * { dim: 1, keepdim: true })` are one call. The types of all forms follow from the same text, in
 * call-forms.ts.
 */

import { callContext } from './call-context.js';
import type { ArgumentsFunction, FunctionOf } from './call-forms.js';
import { namedAfter } from './caller-name.js';
import { Device } from './device.js';
import { DType } from './dtype.js';
import { ArgumentError } from './errors.js';
import { shown, unexpected } from './options.js';
import { Generator } from './random.js';
import { Tensor } from './tensor.js';

export type { ArgumentsOf, FunctionOf, MethodOf } from './call-forms.js';

/** A parsed declaration. */
export interface Declaration {
  readonly name: string;
  /** The number of positional parameters that cannot be given by name. */
  readonly positionalOnly: number;
  /** All positional parameters in order, including the positional-only ones. */
  readonly positional: readonly string[];
  readonly keywordOnly: readonly string[];
  /** The number of positional parameters without a default. */
  readonly needed: number;
}

/**
 * A body takes the positional parameters and then, if there are names after `*`, an object with
 * those that were given.
 */
type Body = (...args: never[]) => unknown;
// The wrappers below pass arguments on; their types are those of call-forms.ts.
type Untyped = (...args: unknown[]) => unknown;

/** Passed to bodies if a call has no options, so that such a call allocates none. */
const NO_OPTIONS: object = Object.freeze({});

const declarations: Declaration[] = [];
const byFunction = new WeakMap<object, Declaration>();

/** All declarations, in order. @internal */
export function allDeclarations(): readonly Declaration[] {
  return declarations;
}

/** The declaration of a function defined by {@link defineFunction}. @internal */
export function declarationOf(fn: object): Declaration | undefined {
  return byFunction.get(fn);
}

/**
 * A public function that can be called by position and with options.
 *
 * @param text - name and parameters, such as `'sum(input, /, dim, keepdim, *, dtype)'`
 * @param body - takes the positional parameters in order, and an options object last if the text
 * has names after `*`. Optional parameters have defaults
 */
export function defineFunction<const Text extends string, B extends Body>(
  text: Text,
  body: B,
): FunctionOf<Text, B> {
  const declared = parse(text, body.length);
  declarations.push(declared);
  const isInPlace = declared.name.endsWith('_');
  const untyped = body as unknown as Untyped;
  const fn = callable(declared, isInPlace ? namedBody(declared.name, untyped) : untyped);
  Object.defineProperty(fn, 'name', { value: declared.name, configurable: true });
  byFunction.set(fn, declared);
  return fn as unknown as FunctionOf<Text, B>;
}

/**
 * The same for a constructor, which passes its arguments on and gets the result of `body`:
 * `constructor(...args: ArgumentsOf<typeof linear>) { const { bias } = linear(...args); … }`.
 *
 * @internal
 */
export function defineArguments<const Text extends string, B extends Body>(
  text: Text,
  body: B,
): ArgumentsFunction<Text, B> {
  return defineFunction(text, body) as unknown as ArgumentsFunction<Text, B>;
}

const named = new WeakSet<object>();

/**
 * The function with `name` as its name. Errors and records of collectives name it as the caller,
 * unless an outer function is named already. @internal
 */
export function underName<F extends Body>(name: string, body: F): F {
  if (named.has(body)) return body;
  const declared = byFunction.get(body);
  const call = body as unknown as Untyped;
  const isShort = declared !== undefined && declared.positional.length <= 6;
  const fn: Untyped = isShort
    ? (a, b, c, d, e, f, o) => {
        if (callContext.op !== null) return call(a, b, c, d, e, f, o);
        callContext.op = name;
        try {
          return call(a, b, c, d, e, f, o);
        } catch (error) {
          throw namedAfter(error, name);
        } finally {
          callContext.op = null;
        }
      }
    : (...args) => {
        if (callContext.op !== null) return call(...args);
        callContext.op = name;
        try {
          return call(...args);
        } catch (error) {
          throw namedAfter(error, name);
        } finally {
          callContext.op = null;
        }
      };
  Object.defineProperty(fn, 'name', { value: name, configurable: true });
  if (declared !== undefined) byFunction.set(fn, declared);
  named.add(fn);
  return fn as unknown as F;
}

/** The body of a method in place: its errors name the method, whatever op it runs. */
function namedBody(name: string, body: Untyped): Untyped {
  return (a, b, c, d, e, f, o) => {
    try {
      return body(a, b, c, d, e, f, o);
    } catch (error) {
      throw namedAfter(error, name);
    }
  };
}

/** The method of a function; it passes `this` as the first argument. @internal */
export function methodOf(fn: Body): (this: unknown, ...args: unknown[]) => unknown {
  const declared = byFunction.get(fn);
  if (declared === undefined) throw new Error(`${fn.name} was not made by defineFunction`);
  const method = forwarding(declared.positional.length, fn as unknown as Untyped);
  Object.defineProperty(method, 'name', { value: declared.name, configurable: true });
  return method;
}

function parse(text: string, parameters: number): Declaration {
  const [, name = '', inside = ''] = /^(\w+)\((.*)\)$/.exec(text) ?? [];
  const names = inside === '' ? [] : inside.split(', ');
  const star = names.includes('*') ? names.indexOf('*') : names.length;
  const before = names.slice(0, star);
  return {
    name,
    positionalOnly: Math.max(0, before.indexOf('/')),
    positional: before.filter((n) => n !== '/'),
    keywordOnly: names.slice(star + 1),
    needed: parameters,
  };
}

/** Whether an argument is the options object. */
export function isOptions(value: unknown): value is object {
  return (
    typeof value === 'object' &&
    value !== null &&
    !(value instanceof Tensor) &&
    !Array.isArray(value) &&
    !isArgument(value)
  );
}

function isArgument(value: object): boolean {
  return (
    value instanceof DType ||
    value instanceof Device ||
    value instanceof Generator ||
    ArrayBuffer.isView(value) ||
    Symbol.iterator in value
  );
}

/**
 * Wrappers with as many parameters as the body has and one for the options, because rest parameters
 * allocate at every call.
 */
function callable(declared: Declaration, body: Untyped): Untyped {
  const count = declared.positional.length;
  const open = declared.positionalOnly === 0;
  const named: Untyped = (...args) => callByName(declared, body, args);
  const none = NO_OPTIONS;
  switch (count) {
    case 0:
      return (o) => (o === undefined ? body(none) : named(o));
    case 1:
      return (a, o) => (o !== undefined || (open && isOptions(a)) ? named(a, o) : body(a, none));
    case 2:
      return (a, b, o) =>
        o !== undefined || isOptions(b) || (open && isOptions(a))
          ? named(a, b, o)
          : body(a, b, none);
    case 3:
      return (a, b, c, o) =>
        o !== undefined || isOptions(b) || isOptions(c) || (open && isOptions(a))
          ? named(a, b, c, o)
          : body(a, b, c, none);
    case 4:
      return (a, b, c, d, o) =>
        o !== undefined || isOptions(b) || isOptions(c) || isOptions(d) || (open && isOptions(a))
          ? named(a, b, c, d, o)
          : body(a, b, c, d, none);
    case 5:
      return (a, b, c, d, e, o) =>
        o !== undefined ||
        isOptions(b) ||
        isOptions(c) ||
        isOptions(d) ||
        isOptions(e) ||
        (open && isOptions(a))
          ? named(a, b, c, d, e, o)
          : body(a, b, c, d, e, none);
    case 6:
      return (a, b, c, d, e, f, o) =>
        o !== undefined ||
        isOptions(b) ||
        isOptions(c) ||
        isOptions(d) ||
        isOptions(e) ||
        isOptions(f) ||
        (open && isOptions(a))
          ? named(a, b, c, d, e, f, o)
          : body(a, b, c, d, e, f, none);
    default:
      return named;
  }
}

function forwarding(count: number, fn: Untyped): (this: unknown, ...args: unknown[]) => unknown {
  switch (count) {
    case 1:
      return function (o) {
        return fn(this, o);
      };
    case 2:
      return function (b, o) {
        return fn(this, b, o);
      };
    case 3:
      return function (b, c, o) {
        return fn(this, b, c, o);
      };
    case 4:
      return function (b, c, d, o) {
        return fn(this, b, c, d, o);
      };
    default:
      return function (...args) {
        return fn(this, ...args);
      };
  }
}

/** Calls the body with options moved to the positions of their names. */
function callByName(declared: Declaration, body: Untyped, args: readonly unknown[]): unknown {
  const { name, positional } = declared;
  const at = placeOfOptions(declared, args);
  if (at === -1) return body(...fitted(args, positional.length), NO_OPTIONS);
  const options = args[at];
  if (!isOptions(options)) throw tooMany(declared, options);
  for (let i = at + 1; i < args.length; i++)
    if (args[i] !== undefined)
      throw unexpected(
        name,
        'options',
        `the last argument, but ${shown(args[i])} comes after them`,
        options,
      );
  const values = fitted(args.slice(0, at), positional.length);
  const rest = distribute(declared, options as Record<string, unknown>, values);
  for (let i = 0; i < declared.needed; i++) if (values[i] === undefined) throw missing(declared, i);
  return body(...values, rest);
}

function placeOfOptions(
  { positionalOnly, positional }: Declaration,
  args: readonly unknown[],
): number {
  for (let i = positionalOnly; i < args.length; i++)
    if (i < positional.length ? isOptions(args[i]) : args[i] !== undefined) return i;
  return -1;
}

/**
 * Moves options to the positions of their names. Returns the keyword-only ones: the given object if
 * it has no others, else a new object.
 */
function distribute(
  declared: Declaration,
  options: Record<string, unknown>,
  values: unknown[],
): object {
  const { positional, positionalOnly, keywordOnly } = declared;
  let rest: Record<string, unknown> | null = null;
  let placed = false;
  for (const option in options) {
    const value = options[option];
    const place = positional.indexOf(option, positionalOnly);
    if (place === -1) {
      if (!keywordOnly.includes(option)) throw noSuchOption(declared, option);
      rest ??= {};
      rest[option] = value;
    } else if (value !== undefined) {
      if (values[place] !== undefined) throw twice(declared, option, values[place], value);
      values[place] = value;
      placed = true;
    }
  }
  return rest === null ? NO_OPTIONS : placed ? rest : options;
}

function fitted(values: readonly unknown[], length: number): unknown[] {
  const all = values.slice(0, length);
  while (all.length < length) all.push(undefined);
  return all;
}

function namesOf({ positional, positionalOnly, keywordOnly }: Declaration): string[] {
  return [...positional.slice(positionalOnly), ...keywordOnly];
}

function noSuchOption(declared: Declaration, option: string): ArgumentError {
  const names = namesOf(declared);
  const known = names.length === 0 ? 'it has none' : `options are ${names.join(', ')}`;
  return new ArgumentError(`${declared.name}: there is no option "${option}"; ${known}`, {
    op: declared.name,
    argument: option,
  });
}

function twice(
  { name }: Declaration,
  argument: string,
  first: unknown,
  second: unknown,
): ArgumentError {
  return new ArgumentError(
    `${name}: ${argument} is given twice, by position (${shown(first)}) and as an option ` +
      `(${shown(second)})`,
    { op: name, argument },
  );
}

function missing({ name, positional, positionalOnly }: Declaration, place: number): ArgumentError {
  const argument = positional[place] as string;
  const byName = place < positionalOnly ? '' : `, or is given as { ${argument}: … }`;
  return new ArgumentError(
    `${name}: expected ${argument}; it comes ` +
      `${place === 0 ? 'first' : `after ${positional[place - 1]}`}${byName}`,
    { op: name, argument },
  );
}

/**
 * The error for a positional argument in place of options: one too many, or a keyword-only one
 * without its name.
 */
function tooMany({ name, positional, keywordOnly }: Declaration, given: unknown): ArgumentError {
  const names =
    keywordOnly.length === 0
      ? 'there are no options'
      : `others are options, in an object such as { ${keywordOnly[0]}: … }`;
  return new ArgumentError(
    `${name}: expected at most ${positional.join(', ')} by position, got ` +
      `${shown(given)} as well; ${names}`,
    {
      op: name,
      argument: 'options',
      value: given,
    },
  );
}
