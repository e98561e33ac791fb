/**
 * Checks of options. Every error names the function, the option, what was expected and what was
 * given.
 */
import { absenceOf } from './absent.js';
import { ArgumentError } from './errors.js';

/** Bounds of a finite number. */
export interface NumberRule {
  /** Least value. */
  from?: number;
  /** Greatest value. */
  to?: number;
  /** The value must be greater. */
  above?: number;
  /** The value must be less. */
  below?: number;
  whole?: boolean;
}

/** @throws ArgumentError unless `value` is a finite number within bounds */
export function checkNumber(
  op: string,
  name: string,
  value: unknown,
  rule: NumberRule = {},
): asserts value is number {
  const {
    from = Number.NEGATIVE_INFINITY,
    to = Number.POSITIVE_INFINITY,
    above = Number.NEGATIVE_INFINITY,
    below = Number.POSITIVE_INFINITY,
    whole = false,
  } = rule;
  const fits =
    typeof value === 'number' && value >= from && value <= to && value > above && value < below;
  if (!fits || (whole && !Number.isSafeInteger(value)))
    throw unexpected(op, name, described(rule), value);
}

/**
 * 23 days: below the limit of Node's timers, which fire at once above 2^31 - 1 ms, with room for
 * grace periods.
 */
export const LONGEST_TIMEOUT_MS = 2_000_000_000;

/**
 * @throws ArgumentError unless `value` is a number of milliseconds that a timer can wait for;
 * `Infinity` is refused
 */
export function checkTimeout(
  op: string,
  value: unknown,
  rule: Pick<NumberRule, 'from' | 'whole'> = {},
): asserts value is number {
  checkNumber(op, 'timeoutMs', value, { from: 0, to: LONGEST_TIMEOUT_MS, ...rule });
}

/** @throws ArgumentError unless `value` is one of the strings */
export function checkOneOf(
  op: string,
  name: string,
  value: unknown,
  allowed: readonly string[],
): void {
  if (typeof value !== 'string' || !allowed.includes(value))
    throw unexpected(op, name, `one of ${allowed.map((a) => `'${a}'`).join(', ')}`, value);
}

/** The error for an option with an unexpected value. */
export function unexpected(
  op: string,
  name: string,
  expected: string,
  value: unknown,
): ArgumentError {
  return new ArgumentError(`${op}: expected ${name} to be ${expected}, got ${shown(value)}`, {
    op,
    argument: name,
    expected,
    value,
  });
}

function described({ from, to, above, below, whole }: NumberRule): string {
  const low = above !== undefined ? `above ${above}` : from !== undefined ? `from ${from}` : '';
  const high =
    below !== undefined
      ? `below ${below}`
      : to !== undefined
        ? above === undefined && from !== undefined
          ? `to ${to}`
          : `up to ${to}`
        : '';
  const both = [low, high].filter((part) => part !== '').join(' ');
  return `a ${whole ? 'whole' : 'finite'} number${both === '' ? '' : ` ${both}`}`;
}

const MOST_CHARACTERS = 400;
const MOST_ELEMENTS = 16;
/** The limit also ends the output of arrays that contain themselves. */
const MOST_DEPTH = 4;

/** A short form of any value, for messages. */
export function shown(value: unknown): string {
  const text = shownAt(value, 0);
  return text.length > MOST_CHARACTERS ? `${text.slice(0, MOST_CHARACTERS)}…` : text;
}

function shownAt(value: unknown, depth: number): string {
  if (typeof value === 'string') return `'${value}'`;
  if (typeof value === 'bigint') return `${value}n`;
  if (Array.isArray(value)) {
    if (depth === MOST_DEPTH) return '[…]';
    const elements = value.slice(0, MOST_ELEMENTS).map((each) => shownAt(each, depth + 1));
    const more = value.length > MOST_ELEMENTS ? `, … of ${value.length}` : '';
    return `[${elements.join(', ')}${more}]`;
  }
  return typeof value === 'object' && value !== null
    ? kindOf(value)
    : typeof value === 'function'
      ? functionOf(value)
      : String(value);
}

/** `a Tensor`, `an Embedding`, `an object`: the kind of an object, for messages. */
export function kindOf(value: object): string {
  const name = value.constructor?.name ?? '';
  if (name === '' || name === 'Object') return 'an object';
  return `${/^[aeio]/i.test(name) ? 'an' : 'a'} ${name}`;
}

/** The same for functions and callable objects such as modules; never the source text. */
export function functionOf(value: object): string {
  const absence = absenceOf(value);
  if (absence !== undefined) return absence;
  if (!/Function$/.test(value.constructor?.name ?? 'Function')) return kindOf(value);
  const isClass = Function.prototype.toString.call(value).startsWith('class');
  return isClass ? `the class ${(value as { name?: unknown }).name}` : 'a function';
}

/** @throws ArgumentError unless `value` is a boolean, or null where that is allowed */
export function checkFlag(op: string, name: string, value: unknown, { orNull = false } = {}): void {
  if (typeof value !== 'boolean' && !(orNull && value === null))
    throw unexpected(op, name, orNull ? 'true, false or null' : 'true or false', value);
}

/** The sets of names, by the text that {@link optionsOf} is passed. */
const knownNames = new Map<string, ReadonlySet<string>>();

function namesOf(names: string): ReadonlySet<string> {
  let known = knownNames.get(names);
  if (known === undefined) {
    known = new Set(names.split(' '));
    knownNames.set(names, known);
  }
  return known;
}

/**
 * Checks an options object and returns it. `names` lists the allowed options, separated by spaces,
 * as one string, so that a call allocates nothing.
 *
 * @throws ArgumentError for null, for a positional argument in place of the object, and for an
 * unknown option
 */
export function optionsOf<T extends object>(
  op: string,
  options: T,
  names: string | null = null,
): T {
  if (typeof options !== 'object' || options === null || Array.isArray(options))
    throw unexpected(
      op,
      'options',
      names === null ? 'an object' : `an object such as ${meantBy(options, names)}`,
      options,
    );
  if (names === null) return options;
  let known: ReadonlySet<string> | null = null; // looked up only if there are options
  for (const name in options) {
    known ??= namesOf(names);
    if (!known.has(name)) throw noSuchOption(op, name, [...known]);
  }
  return options;
}

/**
 * The options object that a caller of the PyTorch form meant: a positional argument there is mostly
 * the first option.
 */
function meantBy(given: unknown, names: string): string {
  const [first] = names.split(' ');
  const isNoValue = ['object', 'undefined', 'function'].includes(typeof given);
  return `{ ${first}: ${isNoValue ? '…' : shown(given)} }`;
}

function noSuchOption(op: string, name: string, names: readonly string[]): ArgumentError {
  return new ArgumentError(`${op}: there is no option "${name}"; options are ${names.join(', ')}`, {
    op,
    argument: name,
  });
}

/** @throws ArgumentError unless `value` is a number; it may be infinite, as the order of a norm */
export function checkLimit(op: string, name: string, value: unknown): asserts value is number {
  if (typeof value !== 'number' || Number.isNaN(value))
    throw unexpected(op, name, 'a number', value);
}

/** @throws ArgumentError unless `value` is a function */
export function checkFunction(op: string, name: string, value: unknown): void {
  if (typeof value !== 'function') throw unexpected(op, name, 'a function', value);
}

/**
 * Checks the result of a user's function that must be synchronous. @throws ArgumentError for a
 * promise, whose own failure is ignored
 */
export function checkSynchronous(op: string, result: unknown, why: string): void {
  if (!(result instanceof Promise)) return;
  result.catch(() => {}); // the error below comes first
  throw new ArgumentError(
    `${op}: expected a synchronous function, got one that returns a promise: ${why}`,
    { op },
  );
}

/** An iterable as an array. @throws ArgumentError for any other value, and for a string */
export function listOf<T>(op: string, name: string, expected: string, value: Iterable<T>): T[] {
  if (typeof value !== 'object' || value === null || typeof value[Symbol.iterator] !== 'function')
    throw unexpected(op, name, expected, value);
  return [...value];
}

/**
 * @throws ArgumentError unless `value` is an array of whole numbers; their range is checked where
 * it is known
 */
export function checkIntegers(
  op: string,
  name: string,
  value: unknown,
): asserts value is readonly number[] {
  if (!Array.isArray(value)) throw unexpected(op, name, 'an array of whole numbers', value);
  // `every` skips holes
  for (const each of value)
    if (!Number.isSafeInteger(each)) throw unexpected(op, name, 'an array of whole numbers', value);
}

/**
 * The defaults, overridden by the given options that are not undefined. @throws ArgumentError for a
 * name that is not among the defaults
 */
export function withDefaults<T extends object>(op: string, defaults: T, given: Partial<T>): T {
  optionsOf(op, given);
  const complete = { ...defaults };
  for (const [name, value] of Object.entries(given)) {
    if (!Object.hasOwn(defaults, name)) throw noSuchOption(op, name, Object.keys(defaults));
    if (value !== undefined) (complete as Record<string, unknown>)[name] = value;
  }
  return complete;
}

/**
 * @throws ArgumentError unless each of the sizes, by their names, is a whole number from 0, or from
 * `least`
 */
export function checkSizesOf(
  op: string,
  sizes: Readonly<Record<string, unknown>>,
  least = 0,
): void {
  for (const [name, size] of Object.entries(sizes))
    checkNumber(op, name, size, { from: least, whole: true });
}

/** @throws ArgumentError unless `p` is a number from 0 to 1 */
export function checkProbability(op: string, name: string, p: unknown): void {
  checkNumber(op, name, p, { from: 0, to: 1 });
}
