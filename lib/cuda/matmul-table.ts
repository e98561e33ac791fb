/**
 * The table of measured matmul configurations of one GPU model: the JSON file, and the text for the
 * native side.
 */
import { ArgumentError } from '../core/errors.js';

export const LAYOUTS = ['nt', 'nn', 'tn', 'tt'] as const;
export const DTYPES = ['bfloat16', 'float32'] as const;
const FORMAT = 1;
/** The largest size that the native side accepts: 2^40. */
const LARGEST = 2 ** 40;

/**
 * y[m, n] = x[m, k] w. First letter of the layout: x is contiguous along k (n) or m (t); second: w
 * along n (n) or k (t).
 */
export interface Product {
  /** float16 uses the kernels and the table of bfloat16. */
  readonly dtype: (typeof DTYPES)[number];
  readonly layout: (typeof LAYOUTS)[number];
  readonly batch: number;
  readonly m: number;
  readonly n: number;
  readonly k: number;
}

export interface TableEntry extends Product {
  /**
   * The fastest configuration, and the fastest of this library's kernels, used without cuBLASLt.
   */
  readonly best: string;
  readonly own: string;
  /** Measured microseconds of both, and of cuBLASLt's first proposal. */
  readonly us: number;
  readonly ownUs: number;
  readonly libraryUs: number | null;
}

export interface MatmulTable {
  /** Version of the set of configurations; a table for another version is ignored. */
  readonly configurations: number;
  readonly gpu: Gpu;
  /** Version of cuBLASLt, 130100; 0 without. */
  readonly library: number;
  readonly entries: readonly TableEntry[];
}

/**
 * The GPU model of a table: the driver's name and the number of multiprocessors.
 */
export interface Gpu {
  readonly name: string;
  readonly multiprocessors: number;
}

/** The product as text for the native side: "bfloat16 nt 1 4096 4096 4096". */
export const productText = ({ dtype, layout, batch, m, n, k }: Product): string =>
  `${dtype} ${layout} ${batch} ${m} ${n} ${k}`;

/** The product for the report: "4096x4096x4096 nt, bfloat16". */
export const describeProduct = ({ dtype, layout, batch, m, n, k }: Product): string =>
  `${batch === 1 ? '' : `${batch} of `}${m}x${n}x${k} ${layout}, ${dtype}`;

/** The table as text for the native side. */
export function nativeTable(table: Pick<MatmulTable, 'library' | 'entries'>): string {
  if (table.entries.length === 0) return '';
  return [
    `library ${table.library}`,
    ...table.entries.map((entry) => `${productText(entry)} ${entry.best} ${entry.own}`),
    '',
  ].join('\n');
}

/** The table as JSON, one entry per line, so that diffs show changed entries. */
export function formatTable({ configurations, gpu, library, entries }: MatmulTable): string {
  const head = JSON.stringify({ format: FORMAT, configurations, gpu, library }, null, 1).slice(
    0,
    -2,
  );
  return (
    `${head},\n "entries": [\n` +
    `${entries.map((entry) => `  ${JSON.stringify(entry)}`).join(',\n')}\n ]\n}\n`
  );
}

/** @throws ArgumentError if the text is not a valid table */
export function parseTable(text: string): MatmulTable {
  let read: unknown;
  try {
    read = JSON.parse(text);
  } catch (error) {
    throw new ArgumentError(`it is not JSON: ${(error as Error).message}`);
  }
  if (!isRecord(read)) throw new ArgumentError('it is not an object');
  if (read['format'] !== FORMAT)
    throw new ArgumentError(
      `it has format ${String(read['format'])}, and this version of shardwise reads ${FORMAT}`,
    );
  const { configurations, gpu, library, entries } = read;
  if (!isCount(configurations)) throw new ArgumentError('"configurations" is not a number');
  if (!isRecord(gpu) || typeof gpu['name'] !== 'string' || !isCount(gpu['multiprocessors']))
    throw new ArgumentError('"gpu" has no name or no number of multiprocessors');
  if (!isCount(library)) throw new ArgumentError('"library" is not a number');
  if (!Array.isArray(entries)) throw new ArgumentError('"entries" is not a list');
  return {
    configurations,
    gpu: { name: gpu['name'], multiprocessors: gpu['multiprocessors'] },
    library,
    entries: entries.map(parseEntry),
  };
}

function parseEntry(entry: unknown, at: number): TableEntry {
  const wrong = (what: string): ArgumentError => new ArgumentError(`entry ${at + 1} ${what}`);
  if (!isRecord(entry)) throw wrong('is not an object');
  const { dtype, layout, batch, m, n, k, best, own, us, ownUs, libraryUs } = entry;
  if (!isOneOf(dtype, DTYPES)) throw wrong(`has dtype ${String(dtype)}`);
  if (!isOneOf(layout, LAYOUTS)) throw wrong(`has layout ${String(layout)}`);
  if (!isSize(batch) || !isSize(m) || !isSize(n) || !isSize(k))
    throw wrong('has a size that is not a positive integer');
  if (!isName(best) || !isName(own)) throw wrong('lacks a configuration');
  if (!isTime(us) || !isTime(ownUs) || (libraryUs !== null && !isTime(libraryUs)))
    throw wrong('has a time that is not a number of microseconds');
  return { dtype, layout, batch, m, n, k, best, own, us, ownUs, libraryUs };
}

/** Merges entries; `over` overrides `under`. */
export function mergeEntries(
  under: readonly TableEntry[],
  over: readonly TableEntry[],
): TableEntry[] {
  return [...new Map([...under, ...over].map((entry) => [productText(entry), entry])).values()];
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isOneOf = <T extends string>(value: unknown, list: readonly T[]): value is T =>
  list.includes(value as T);
const isCount = (value: unknown): value is number =>
  Number.isSafeInteger(value) && (value as number) >= 0;
const isSize = (value: unknown): value is number => isCount(value) && value >= 1 && value < LARGEST;
const isTime = (value: unknown): value is number =>
  Number.isFinite(value) && (value as number) >= 0;
const isName = (value: unknown): value is string =>
  typeof value === 'string' && /^[\w:,=-]{1,47}$/.test(value);
