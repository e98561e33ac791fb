/**
 * Plain values as JSON that gives them back as the same kinds: also infinities, bigints, maps,
 * sets, dates and typed arrays. What would come back as something else is refused.
 */
import { ArgumentError, CheckpointError } from '../../core/errors.js';
import { shown } from '../../core/options.js';
import { base64Of, builtInOf, bytesAs, isMap, isOfBytes } from './built-ins.js';
import { isRecord, isStateful, joined } from './paths.js';

type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

/** `{ $value: text }` is a primitive, `{ $value: [kind, content] }` an object that JSON lacks. */
const TAG = '$value';
/** Marks the state of random numbers in a checkpoint. */
export const RANDOM = '$random';

/**
 * A value that JSON can hold. @throws ArgumentError with its path in the state if it holds
 * something else, such as a function
 */
export function encodeValue(op: string, path: string, value: unknown): Json {
  if (value === null || typeof value === 'boolean' || typeof value === 'string') return value;
  if (typeof value === 'bigint') return { [TAG]: `bigint ${value}` };
  if (typeof value === 'number')
    return Number.isFinite(value) && !Object.is(value, -0) ? value : { [TAG]: numberText(value) };
  if (typeof value === 'undefined') return { [TAG]: 'undefined' };
  if (isStateful(value)) throw refusal(op, path, value, 'save its stateDict()');
  if (typeof value !== 'object') throw refusal(op, path, value, 'leave it out');
  const inner = (name: string, each: unknown): Json => encodeValue(op, joined(path, name), each);
  if (isRecord(value)) return encodeRecord(op, path, value, inner);
  const kind = builtInOf(value);
  if (kind === 'Array') return Array.from(value as unknown[], (each, i) => inner(`${i}`, each));
  if (isMap(value)) {
    checkLookups(op, `the keys of "${path}"`, value.keys());
    const entries = [...value].map(([key, each]) => [inner('', key), inner(String(key), each)]);
    return { [TAG]: ['Map', entries] };
  }
  if (kind === 'Set') {
    const elements = [...(value as Set<unknown>)];
    checkLookups(op, `the elements of "${path}"`, elements);
    return { [TAG]: [kind, elements.map((each, i) => inner(`${i}`, each))] };
  }
  if (kind === 'Date') return { [TAG]: [kind, inner('', (value as Date).getTime())] };
  if (kind !== null && isOfBytes(kind)) return { [TAG]: [kind, base64Of(value)] };
  throw refusal(
    op,
    path,
    value,
    'leave it out, save its values, or give it stateDict and loadStateDict',
  );
}

function encodeRecord(
  op: string,
  path: string,
  value: Readonly<Record<string, unknown>>,
  inner: (name: string, value: unknown) => Json,
): Json {
  const [symbol] = Object.getOwnPropertySymbols(value);
  if (symbol !== undefined) throw refusal(op, joined(path, String(symbol)), symbol, 'use a string');
  const record = Object.fromEntries(
    Object.entries(value).map(([name, each]) => [name, inner(name, each)]),
  );
  return isMarked(record) ? { [TAG]: record } : record;
}

const refusal = (op: string, path: string, value: unknown, advice: string): ArgumentError =>
  new ArgumentError(
    `${op}: expected "${path}" of the state to be a tensor or a plain value, got ` +
      `${shown(value)}; ${advice}`,
    { op, path, value },
  );

/** @throws ArgumentError for objects: those that are loaded are others, and never found */
function checkLookups(op: string, what: string, values: Iterable<unknown>): void {
  for (const value of values)
    if (Object(value) === value)
      throw new ArgumentError(
        `${op}: expected ${what} of the state to be strings or other primitives, got ` +
          `${shown(value)}, which a loaded one is not equal to; save a list`,
        { op, value },
      );
}

/** Whether it could be taken for something else: then it is stored inside of a tagged object. */
function isMarked(record: object): boolean {
  const names = Object.keys(record);
  return names.length === 1 && (names[0] === TAG || names[0] === RANDOM);
}

const numberText = (value: number): string => (Object.is(value, -0) ? '-0' : String(value));

/** The value that was encoded. @throws CheckpointError for an object of no kind */
export function decodeValue(json: unknown): unknown {
  if (Array.isArray(json)) return json.map(decodeValue);
  if (typeof json !== 'object' || json === null) return json;
  const entries = Object.entries(json);
  const [first] = entries;
  if (entries.length !== 1 || first?.[0] !== TAG) return decodedEntries(json);
  const tagged: unknown = first[1];
  if (Array.isArray(tagged)) return decodeBuiltIn(tagged[0], tagged[1]);
  if (typeof tagged === 'object' && tagged !== null) return decodedEntries(tagged);
  const text = String(tagged);
  if (text === 'undefined') return undefined;
  return text.startsWith('bigint ') ? BigInt(text.slice(7)) : Number(text);
}

const decodedEntries = (json: object): Record<string, unknown> =>
  Object.fromEntries(Object.entries(json).map(([name, each]) => [name, decodeValue(each)]));

function decodeBuiltIn(kind: unknown, content: unknown): unknown {
  if (kind === 'Map') return new Map(decodeValue(content) as [unknown, unknown][]);
  if (kind === 'Set') return new Set(decodeValue(content) as unknown[]);
  if (kind === 'Date') return new Date(decodeValue(content) as number);
  const value = bytesAs(String(kind), String(content));
  if (value !== null) return value;
  throw new CheckpointError(`a value is of the kind ${kind}, which this runtime does not have`, {
    kind,
  });
}
