/**
 * Finds and loads the tables of measured matmul configurations of a device: the shipped table, and
 * the user's, which overrides it.
 */
import { existsSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import path from 'node:path';
import type { Addon } from '../native/addon.js';
import { packageFolder } from '../native/load.js';
import {
  type Gpu,
  type MatmulTable,
  mergeEntries,
  nativeTable,
  parseTable,
  type TableEntry,
} from './matmul-table.js';

/** A table file: its number of products, or why it is ignored. */
export type TableFile = { path: string; entries: number } | { path: string; ignored: string };

export interface FoundTables {
  readonly files: readonly TableFile[];
  /** The usable ones. */
  readonly tables: readonly { path: string; table: MatmulTable }[];
}

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * The folder of the tables that `shardwise tune` writes; null if `SHARDWISE_TUNE_CACHE` is `off`.
 */
export function tableFolder(environment: Environment = process.env): string | null {
  const named = environment['SHARDWISE_TUNE_CACHE'];
  if (named === 'off') return null;
  if (named) return path.resolve(named);
  const cache = environment['XDG_CACHE_HOME'];
  return path.join(
    cache && path.isAbsolute(cache) ? cache : path.join(environment['HOME'] || homedir(), '.cache'),
    'shardwise',
  );
}

/** Uses only letters and digits of the driver's name, which may contain anything. */
export function tableFileName({ name, multiprocessors }: Gpu): string {
  const words = name.toLowerCase().match(/[a-z0-9]+/g) ?? ['gpu'];
  return `matmul-${words.join('-')}-${multiprocessors}.json`;
}

/** The possible files of a GPU: the shipped one, then the user's, which overrides it. */
export function tablePaths(gpu: Gpu, environment: Environment = process.env): string[] {
  const cache = tableFolder(environment);
  return [path.join(packageFolder(), 'native', 'tables'), ...(cache === null ? [] : [cache])].map(
    (folder) => path.join(folder, tableFileName(gpu)),
  );
}

export const gpuOf = (addon: Addon, device: number): Gpu => {
  const { name, numCores } = addon.deviceInfo(device);
  return { name, multiprocessors: numCores };
};

/** Reads the existing files; an unusable file is ignored with the reason. */
export function findTables(
  addon: Pick<Addon, 'tuningVersion'>,
  gpu: Gpu,
  environment: Environment = process.env,
): FoundTables {
  const found = tablePaths(gpu, environment)
    .filter((file) => existsSync(file))
    .map((file) => ({ path: file, read: readTable(file, gpu, addon.tuningVersion()) }));
  return {
    files: found.map(({ path, read }) =>
      typeof read === 'string' ? { path, ignored: read } : { path, entries: read.entries.length },
    ),
    tables: found.flatMap(({ path, read }) =>
      typeof read === 'string' ? [] : [{ path, table: read }],
    ),
  };
}

/** Merges tables; later ones override earlier ones. */
export function mergeTables(
  tables: readonly MatmulTable[],
): Pick<MatmulTable, 'library' | 'entries'> {
  const library = tables.at(-1)?.library ?? 0;
  // Another cuBLASLt version proposes other algorithms, so only its default remains meaningful.
  const kept = (table: MatmulTable): readonly TableEntry[] =>
    table.library === library
      ? table.entries
      : table.entries.map((entry) => ({
          ...entry,
          best: entry.best.replace(/^library:.*/, 'library'),
        }));
  return {
    library,
    entries: tables.reduce<readonly TableEntry[]>(
      (under, table) => mergeEntries(under, kept(table)),
      [],
    ),
  };
}

/** The table, or why it is unusable. */
function readTable(file: string, gpu: Gpu, version: number): MatmulTable | string {
  try {
    const table = parseTable(readFileSync(file, 'utf8'));
    if (table.configurations !== version)
      return (
        `it is for configurations of version ${table.configurations}, this build has ` +
        `version ${version}`
      );
    if (table.gpu.name !== gpu.name || table.gpu.multiprocessors !== gpu.multiprocessors)
      return `it is for ${table.gpu.name} with ${table.gpu.multiprocessors} multiprocessors`;
    return table;
  } catch (error) {
    return (error as Error).message;
  }
}

const loaded = new Set<number>();

/**
 * Loads the tables before the first use of a device. The device works without them; an ignored file
 * causes one warning.
 */
export function loadTables(addon: Addon, device: number): void {
  if (loaded.has(device)) return;
  loaded.add(device);
  const { files, tables } = findTables(addon, gpuOf(addon, device));
  for (const file of files) if ('ignored' in file) warn(file.path, file.ignored);
  const load = (of: readonly MatmulTable[]): void =>
    addon.loadTuning(device, nativeTable(mergeTables(of)));
  const usable = tables.filter(({ path, table }) => {
    try {
      load([table]);
      return true;
    } catch (error) {
      warn(path, (error as Error).message);
      return false;
    }
  });
  if (usable.length > 1) load(usable.map(({ table }) => table));
}

function warn(file: string, reason: string): void {
  process.emitWarning(
    `${file} is ignored: ${reason}. A rule chooses the kernels of matrix products; \`npx ` +
      'shardwise tune` measures them again.',
    'TuningWarning',
  );
}
