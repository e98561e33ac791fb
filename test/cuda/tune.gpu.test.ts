/**
 * `shardwise tune` on a GPU, and the effect of its table on later programs, also for nearby
 * products, for a broken table and without cuBLASLt.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { after, before, describe, it } from 'mocha';
import type { TuneReport } from '../../lib/cli/tune.js';
import { formatTable, type MatmulTable, parseTable } from '../../lib/cuda/matmul-table.js';
import { programArguments } from '../run-program.js';
import { skipWithoutCuda } from '../skip.js';

/** Sizes of no model, so that no shipped table knows them. */
const [M, N, K] = [48, 328, 1040] as const;

describe('shardwise tune on a GPU', function () {
  this.timeout(60_000);
  const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-tune-'));
  let file = '';
  let tuned: MatmulTable;

  const run = (name: string, args: string[], env: Record<string, string> = {}) =>
    promisify(execFile)(process.execPath, [...programArguments(name), ...args], {
      env: { ...process.env, SHARDWISE_TUNE_CACHE: folder, ...env },
    });
  /** Computes them, each right, and gives the lines that say who did. */
  const products = async (texts: string[], env: Record<string, string> = {}): Promise<string> => {
    const { stdout, stderr } = await run('cuda/programs/products', texts, {
      SHARDWISE_DEBUG: 'matmul',
      ...env,
    });
    for (const error of JSON.parse(stdout) as number[])
      assert.ok(error <= 1, `${texts}: ${stdout}`);
    return stderr;
  };

  before(async function () {
    skipWithoutCuda(this);
    const { stdout } = await run('../lib/cli/main', [
      'tune',
      '--shapes',
      `${M}x${N}x${K}`,
      '--layout',
      'nt,tn',
      '--json',
    ]);
    const report = JSON.parse(stdout) as TuneReport;
    file = path.join(folder, readdirSync(folder)[0] as string);
    assert.equal(report.file, file);
    assert.equal(report.products.length, 2);
    assert.ok(report.products.every(({ timed }) => timed.length > 1));
    tuned = parseTable(readFileSync(file, 'utf8'));
  });
  after(() => rmSync(folder, { recursive: true }));

  const withEvery = (best: string, own: string): void =>
    writeFileSync(
      file,
      formatTable({ ...tuned, entries: tuned.entries.map((entry) => ({ ...entry, best, own })) }),
    );

  it('determines the kernels of later programs, for the product and its neighbours', async () => {
    const [first] = tuned.entries;
    const told = await products([`${M}x${N}x${K}`, `${M + 2}x${N}x${K}`, '700x136x1000']);
    assert.ok(
      told.includes(`shardwise: matmul bfloat16 nt 1x${M}x${N}x${K} by ${first?.best} (table)\n`),
      told,
    );
    assert.match(told, new RegExp(`nt 1x${M + 2}x${N}x${K} by \\S+ \\(near\\)`));
    assert.match(told, /nt 1x700x136x1000 by \S+ \(rule\)/);
  });

  it('computes every configuration correctly', async () => {
    const { stdout } = await run('../lib/cli/main', [
      'tune',
      '--shapes',
      `${M}x${N}x${K}`,
      '--dry-run',
      '--json',
    ]);
    const [{ timed }] = (JSON.parse(stdout) as TuneReport).products as [TuneReport['products'][0]];
    for (const { name } of timed.filter((each) => !each.name.startsWith('library:'))) {
      withEvery(name, name);
      const told = await products([`${M}x${N}x${K}:nt`, `${M}x${N}x${K}:tn`]);
      assert.ok(told.includes(`by ${name} (table)`), told);
    }
    writeFileSync(file, formatTable(tuned));
  });

  it('ignores a broken file with one warning that names it', async () => {
    const broken = [
      '{"format": 1',
      formatTable({ ...tuned, configurations: 0 }),
      formatTable({
        ...tuned,
        entries: tuned.entries.map((entry) => ({ ...entry, best: 'no-such-kernel' })),
      }),
    ];
    for (const text of broken) {
      writeFileSync(file, text);
      const told = await products([`${M}x${N}x${K}`]);
      assert.equal(told.split(`TuningWarning: ${file} is ignored`).length, 2, told);
      assert.match(told, /by \S+ \(rule\)/);
    }
    writeFileSync(file, formatTable(tuned));
  });

  it('works without cuBLASLt, by the fastest own kernel of the table or by the rule', async () => {
    const own = tuned.entries[0]?.own as string;
    withEvery('library', own);
    const told = await products(
      [
        `${M}x${N}x${K}:nt`,
        '1000x1000x1000:nn',
        '16x1000x1000:nt',
        '3x500x700:tt',
        '999x333x77:tn',
      ],
      { SHARDWISE_CUBLASLT_PATH: 'off' },
    );
    assert.ok(told.includes(`nt 1x${M}x${N}x${K} by ${own} (table)`), told);
    assert.doesNotMatch(told, /by library/);
    writeFileSync(file, formatTable(tuned));
  });

  it('reports products without a choice, too, and the layout of unaligned rows', async () => {
    const told = await products(['8x8x8:nt', '60x60x60:nn', '999x333x77:tn']);
    assert.ok(told.includes('shardwise: matmul bfloat16 nt 1x8x8x8 by small (rule)\n'), told);
    assert.ok(told.includes('shardwise: matmul bfloat16 nn 1x60x60x60 by simt (rule)\n'), told);
    assert.match(told, /bfloat16 tn 1x999x333x77 by \S+ \(rule\)/);
  });

  it('ignores an unknown word in the environment', async () => {
    await assert.rejects(
      products(['8x8x8:nt'], { SHARDWISE_MATMUL: 'onw' }),
      /SHARDWISE_MATMUL: expected 'own' or 'cublaslt', got 'onw'/,
    );
  });

  it('is reported by doctor', async () => {
    const { stdout } = await run('../lib/cli/main', ['doctor']);
    assert.ok(stdout.includes(`2 matrix products, ${file}`), stdout);
  });
});
