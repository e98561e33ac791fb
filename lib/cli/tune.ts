/**
 * `shardwise tune`: measures the fastest matmul configuration of each product on this GPU, and
 * writes a table for later programs.
 */
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { SingleBar } from 'cli-progress';
import type { Command } from 'commander';
import { ArgumentError } from '../core/errors.js';
import {
  describeProduct,
  formatTable,
  type Gpu,
  type MatmulTable,
  mergeEntries,
  type Product,
  parseTable,
} from '../cuda/matmul-table.js';
import { gpuOf, tableFileName, tableFolder } from '../cuda/tables.js';
import { replaceFile } from '../files/replace-file.js';
import { findLibrary, libraryNamed } from '../native/libraries.js';
import { cudaBackendCandidates, loadAddon, openCudaBackend } from '../native/load.js';
import type { Measured } from './tune-measure.js';
import { DTYPES, everydayProducts, LAYOUTS, parseNames, parseProducts } from './tune-products.js';

interface TuneOptions {
  shapes?: string[];
  layout: string;
  dtype: string;
  output?: string;
  json?: true;
  dryRun?: true;
}

/** The shape of `shardwise tune --json`. */
export interface TuneReport {
  gpu: Gpu;
  /** The file of the table; null for a dry run. */
  file: string | null;
  products: Omit<Measured, 'product'>[];
  /** Products that use no table. */
  skipped: Product[];
}

const OP = 'shardwise tune';
const DEVICE = 1; // cuda:0
/** Number of runners-up that are printed. */
const SHOWN = 3;

/** Adds the command to `shardwise`. */
export function addTune(program: Command): void {
  program
    .command('tune')
    .description(
      'measure the configurations of matrix products on this GPU, and keep the fastest ' +
        'for later programs',
    )
    .option(
      '--shapes <shapes...>',
      'products MxNxK, with an optional batch (8xMxNxK) and layout (MxNxK:nn), or a file of them ' +
        '(default: the linear layers of common models)',
    )
    .option(
      '--layout <layouts>',
      `layout of shapes without one: ${LAYOUTS.join(', ')}; nt is x W^T, nn the gradient ` +
        'of x, tn that of W',
      'nt',
    )
    .option(
      '--dtype <dtypes>',
      `${DTYPES.join(', ')}; float16 uses the table of bfloat16`,
      'bfloat16',
    )
    .option('--output <file>', "write this file instead of one in the user's cache")
    .option('--dry-run', 'measure, but write nothing')
    .option('--json', 'print JSON')
    .action(async (options: TuneOptions) => {
      process.exitCode = await runTune(options);
    });
}

async function runTune(options: TuneOptions): Promise<number> {
  try {
    const products = productsOf(options);
    const forced = process.env['SHARDWISE_MATMUL'];
    if (forced)
      throw new ArgumentError(
        `${OP}: SHARDWISE_MATMUL=${forced} fixes the kernel, so there is nothing to tune; unset it`,
        { op: OP },
      );
    const missing = whyNoGpu();
    if (missing !== null)
      throw new ArgumentError(`${OP}: ${missing}. See \`npx shardwise doctor\`.`, { op: OP });
    const addon = loadAddon();
    const gpu = gpuOf(addon, DEVICE);
    const file = options.dryRun ? null : destination(gpu, options.output);
    const { found } = findLibrary(addon, libraryNamed('cuBLASLt'));
    const about = { configurations: addon.tuningVersion(), gpu, library: found?.version ?? 0 };
    const report = await measureAll(products, about, file);
    console.log(options.json ? JSON.stringify(report, null, 2) : describeTuning(report));
    return 0;
  } catch (error) {
    console.error(error instanceof Error ? error.message : String(error));
    return 1;
  }
}

function productsOf({ shapes, layout, dtype }: TuneOptions): Product[] {
  const dtypes = parseNames(dtype, DTYPES, 'dtypes');
  const layouts = parseNames(layout, LAYOUTS, 'layouts');
  const products =
    shapes === undefined ? everydayProducts(dtypes) : parseProducts(shapes, layouts, dtypes);
  if (products.length === 0)
    throw new ArgumentError(`${OP}: there is no product to measure`, { op: OP });
  return products;
}

/** Why tuning is not possible; null if it is. */
function whyNoGpu(): string | null {
  const addon = loadAddon();
  const candidates = cudaBackendCandidates();
  const reasons = candidates.map((file) => openCudaBackend(addon, file));
  if (!reasons.includes(null))
    return (
      'there is no GPU to measure on: ' +
      (candidates.length === 0
        ? 'the CUDA part of shardwise is not built'
        : [...new Set(reasons)].join('; '))
    );
  return addon.tuningVersion() === 0 ? 'the CUDA part of shardwise has nothing to choose' : null;
}

function destination(gpu: Gpu, output: string | undefined): string {
  if (output !== undefined) return path.resolve(output);
  const folder = tableFolder();
  if (folder === null)
    throw new ArgumentError(
      `${OP}: SHARDWISE_TUNE_CACHE is off, so there is no folder for the table; give --output, ` +
        'or measure with --dry-run',
      { op: OP },
    );
  return path.join(folder, tableFileName(gpu));
}

/** Measures all products. Writes after each, so that an interrupted run keeps its results. */
async function measureAll(
  products: readonly Product[],
  about: Omit<MatmulTable, 'entries'>,
  file: string | null,
): Promise<TuneReport> {
  const { measure } = await import('./tune-measure.js');
  const bar = new SingleBar({
    format: '{bar} {value}/{total} | {product} | {eta_formatted} left',
    etaBuffer: 20,
  });
  const report: TuneReport = { gpu: about.gpu, file, products: [], skipped: [] };
  bar.start(products.length, 0, { product: 'warming up' });
  try {
    measure(loadAddon(), DEVICE, products[0] as Product, about.library);
    for (const product of products) {
      bar.update({ product: describeProduct(product) });
      const measured = measure(loadAddon(), DEVICE, product, about.library);
      if (measured === null) {
        report.skipped.push(product);
      } else {
        const { timed, rule, entry } = measured;
        report.products.push({ timed, rule, entry });
        if (file !== null) await writeTable(file, { ...about, entries: [entry] });
      }
      bar.increment();
    }
  } finally {
    bar.stop();
  }
  return report;
}

/**
 * Merges entries into the file, if that is for the same configurations; else replaces it. The file
 * is replaced atomically, so that no reader finds half of it.
 */
async function writeTable(file: string, table: MatmulTable): Promise<void> {
  const before = existsSync(file) ? tableOrNull(file) : null;
  const fits =
    before !== null &&
    before.configurations === table.configurations &&
    before.library === table.library &&
    before.gpu.name === table.gpu.name;
  mkdirSync(path.dirname(file), { recursive: true });
  const text = formatTable({
    ...table,
    entries: mergeEntries(fits ? before.entries : [], table.entries),
  });
  await replaceFile(file, (opened) => opened.writeFile(text));
}

function tableOrNull(file: string): MatmulTable | null {
  try {
    return parseTable(readFileSync(file, 'utf8'));
  } catch {
    return null;
  }
}

/** Formats the report as text. */
export function describeTuning({ gpu, file, products, skipped }: TuneReport): string {
  const rows = products.map(({ entry, timed, rule }) => {
    const ruleUs = timed.find(({ name }) => name === rule)?.us;
    const next = timed.filter(({ name }) => name !== entry.best).slice(0, SHOWN);
    return [
      describeProduct(entry),
      entry.best,
      `${entry.us.toFixed(1)} us`,
      next[0] === undefined ? '' : `${((next[0].us / entry.us - 1) * 100).toFixed(1)} %`,
      next.map(({ name, us }) => `${name} ${us.toFixed(1)}`).join(', '),
      ruleUs === undefined || rule === entry.best ? '' : `${rule} ${ruleUs.toFixed(1)}`,
    ];
  });
  const head = ['product', 'fastest', 'time', 'before the next', 'which are', 'without a table'];
  const widths = head.map((title, column) =>
    Math.max(title.length, ...rows.map((row) => (row[column] as string).length)),
  );
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, column) => cell.padEnd(widths[column] as number))
      .join('  ')
      .trimEnd();
  return [
    `${gpu.name}, ${gpu.multiprocessors} multiprocessors`,
    ...[head, ...rows].map(line),
    ...skipped.map(
      (product) =>
        `${describeProduct(product)}: uses no table, because it is small or the rows of its ` +
        'operands are not aligned to 16 bytes',
    ),
    file === null ? 'nothing was written' : `written to ${file}`,
  ].join('\n');
}
