/**
 * `shardwise tune`: measures which configuration of matmul is the fastest on this GPU, and keeps it
 * for programs to come.
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
  /** Where the table was written; null for a dry run. */
  file: string | null;
  products: Omit<Measured, 'product'>[];
  /** Products that no table speaks of. */
  skipped: Product[];
}

const OP = 'shardwise tune';
const DEVICE = 1; // cuda:0
/** Of the slowest of a list worth printing. */
const SHOWN = 3;

/** Adds the command to `shardwise`. */
export function addTune(program: Command): void {
  program
    .command('tune')
    .description(
      'measure the configurations of matrix products on this GPU, and keep the fastest for programs to come',
    )
    .option(
      '--shapes <shapes...>',
      'products as MxNxK, a batch in front (8xMxNxK), a layout behind (MxNxK:nn), or a file of them; else the linear layers of everyday models',
    )
    .option(
      '--layout <layouts>',
      `of shapes that name none: ${LAYOUTS.join(', ')}; nt is x W^T, nn the gradient of x, tn that of W`,
      'nt',
    )
    .option(
      '--dtype <dtypes>',
      `${DTYPES.join(', ')}; float16 goes by the table of bfloat16`,
      'bfloat16',
    )
    .option('--output <file>', "write there instead of into the user's cache")
    .option('--dry-run', 'measure, but write nothing')
    .option('--json', 'as JSON')
    .action(async (options: TuneOptions) => {
      process.exitCode = await runTune(options);
    });
}

async function runTune(options: TuneOptions): Promise<number> {
  try {
    const products = productsOf(options);
    const forced = process.env['SHARDWISE_MATMUL'];
    if (forced)
      throw new ArgumentError(`${OP}: SHARDWISE_MATMUL=${forced} leaves no choice: unset it`, {
        op: OP,
      });
    const missing = whyNoGpu();
    if (missing !== null)
      throw new ArgumentError(`${OP}: ${missing}. \`npx shardwise doctor\` says more.`, { op: OP });
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

/** Null if there is a GPU that has something to choose. */
function whyNoGpu(): string | null {
  const addon = loadAddon();
  const candidates = cudaBackendCandidates();
  const reasons = candidates.map((file) => openCudaBackend(addon, file));
  if (!reasons.includes(null))
    return `there is no GPU to measure on: ${candidates.length === 0 ? 'the CUDA part of shardwise is not built' : [...new Set(reasons)].join('; ')}`;
  return addon.tuningVersion() === 0 ? 'the CUDA part of shardwise has nothing to choose' : null;
}

function destination(gpu: Gpu, output: string | undefined): string {
  if (output !== undefined) return path.resolve(output);
  const folder = tableFolder();
  if (folder === null)
    throw new ArgumentError(
      `${OP}: SHARDWISE_TUNE_CACHE is off, so there is no place for the table; name one with --output, or measure with --dry-run`,
      { op: OP },
    );
  return path.join(folder, tableFileName(gpu));
}

/** Writes as it goes, so that who interrupts it has what was measured. */
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
 * Over what the file knows already, if that is for the same configurations; in one step, so that no
 * reader finds half a file.
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

/** As text for people. */
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
        `${describeProduct(product)}: goes by no table, because it is small or rows of its operands do not begin at multiples of 16 bytes`,
    ),
    file === null ? 'nothing was written' : `written to ${file}`,
  ].join('\n');
}
