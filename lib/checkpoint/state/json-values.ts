/** Plain values as JSON that gives them back: also infinities, NaN and bigints. */

type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

const TAG = '$value';
/** Marks the state of random numbers in a checkpoint. */
export const RANDOM = '$random';

/** A value that JSON can hold; null if it holds something else, such as a function. */
export function encodeValue(value: unknown): Json | undefined {
  if (value === null || typeof value === 'boolean' || typeof value === 'string') return value;
  if (typeof value === 'bigint') return { [TAG]: `bigint ${value}` };
  if (typeof value === 'number')
    return Number.isFinite(value) && !Object.is(value, -0) ? value : { [TAG]: numberText(value) };
  if (typeof value === 'undefined') return { [TAG]: 'undefined' };
  if (typeof value !== 'object') return undefined;
  if (Array.isArray(value)) {
    const list = value.map(encodeValue);
    return list.includes(undefined) ? undefined : (list as Json[]);
  }
  const entries = Object.entries(value).map(([name, each]) => [name, encodeValue(each)] as const);
  if (entries.some(([, each]) => each === undefined)) return undefined;
  const record = Object.fromEntries(entries) as { [name: string]: Json };
  return isMarked(record) ? { [TAG]: record } : record;
}

/** Whether it could be taken for something else: then it is stored inside of a tagged object. */
function isMarked(record: object): boolean {
  const names = Object.keys(record);
  return names.length === 1 && (names[0] === TAG || names[0] === RANDOM);
}

const numberText = (value: number): string => (Object.is(value, -0) ? '-0' : String(value));

/** The value that was encoded. */
export function decodeValue(json: unknown): unknown {
  if (Array.isArray(json)) return json.map(decodeValue);
  if (typeof json !== 'object' || json === null) return json;
  const entries = Object.entries(json);
  const [first] = entries;
  if (entries.length === 1 && first?.[0] === TAG) {
    const tagged: unknown = first[1];
    if (typeof tagged === 'object' && tagged !== null) return decodedEntries(tagged);
    const text = String(tagged);
    if (text === 'undefined') return undefined;
    return text.startsWith('bigint ') ? BigInt(text.slice(7)) : Number(text);
  }
  return decodedEntries(json);
}

const decodedEntries = (json: object): Record<string, unknown> =>
  Object.fromEntries(Object.entries(json).map(([name, each]) => [name, decodeValue(each)]));
