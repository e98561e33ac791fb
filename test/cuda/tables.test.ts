/**
 * Files of measured configurations: which are read, which are ignored and why, and which override
 * others.
 */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, beforeEach, describe, it } from 'mocha';
import {
  formatTable,
  type MatmulTable,
  mergeEntries,
  nativeTable,
  parseTable,
  productText,
  type TableEntry,
} from '../../lib/cuda/matmul-table.js';
import {
  findTables,
  mergeTables,
  tableFileName,
  tableFolder,
  tablePaths,
} from '../../lib/cuda/tables.js';
import { packageFolder } from '../../lib/native/load.js';

const VERSION = 7;
const addon = { tuningVersion: () => VERSION };
const gpu = { name: 'NVIDIA Testing 1000', multiprocessors: 4 };
const entry: TableEntry = {
  dtype: 'bfloat16',
  layout: 'nt',
  batch: 1,
  m: 16,
  n: 4096,
  k: 4096,
  best: 'library:2',
  own: 'stream',
  us: 10,
  ownUs: 11,
  libraryUs: 12,
};
const table: MatmulTable = {
  configurations: VERSION,
  gpu,
  library: 130100,
  entries: [entry, { ...entry, m: 128, best: 'wgmma:128x128,split=2', libraryUs: null }],
};

describe('a table of matmul configurations', () => {
  it('is read as it was written, one entry per line', () => {
    const text = formatTable(table);
    assert.deepEqual(parseTable(text), table);
    assert.equal(text.split('\n').filter((line) => line.includes('"bfloat16"')).length, 2);
    assert.deepEqual(parseTable(formatTable({ ...table, entries: [] })).entries, []);
  });

  it('is passed to the native side line by line', () => {
    assert.equal(
      nativeTable(table),
      'library 130100\nbfloat16 nt 1 16 4096 4096 library:2 stream\nbfloat16 nt 1 128 4096 4096 wgmma:128x128,split=2 stream\n',
    );
    assert.equal(nativeTable({ library: 130100, entries: [] }), '');
  });

  const broken: [string, RegExp][] = [
    ['', /not JSON/],
    ['{"format": 1, "entr', /not JSON/],
    ['[]', /not an object/],
    ['null', /not an object/],
    ['{}', /format undefined, and this version of shardwise reads 1/],
    [formatTable(table).replace('"format": 1', '"format": 2'), /format 2/],
    [JSON.stringify({ format: 1, configurations: 1.5 }), /"configurations" is not a number/],
    [JSON.stringify({ format: 1, configurations: 1, gpu: 'H200' }), /"gpu" has no name/],
    [JSON.stringify({ ...table, format: 1, library: '13' }), /"library" is not a number/],
    [JSON.stringify({ ...table, format: 1, entries: {} }), /"entries" is not a list/],
    [JSON.stringify({ ...table, format: 1, entries: [entry, null] }), /entry 2 is not an object/],
  ];
  for (const [text, reason] of broken)
    it(`is refused as ${JSON.stringify(text.slice(0, 40))}`, () =>
      assert.throws(() => parseTable(text), reason));

  const wrong: [Partial<Record<keyof TableEntry, unknown>>, RegExp][] = [
    [{ dtype: 'int8' }, /entry 1 has dtype int8/],
    [{ layout: 'xy' }, /entry 1 has layout xy/],
    [{ m: 0 }, /size/],
    [{ k: 1.5 }, /size/],
    [{ n: 2 ** 50 }, /size/],
    [{ batch: '1' }, /size/],
    [{ best: '' }, /lacks a configuration/],
    [{ own: 'a b' }, /lacks a configuration/],
    [{ best: 'x\nlibrary' }, /lacks a configuration/],
    [{ own: 'x'.repeat(100) }, /lacks a configuration/],
    [{ us: Number.NaN }, /has a time/],
    [{ ownUs: -1 }, /has a time/],
  ];
  for (const [change, reason] of wrong) {
    it(`is refused with ${JSON.stringify(change).slice(0, 40)}`, () => {
      const entries = [{ ...entry, ...change }] as unknown as TableEntry[];
      assert.throws(() => parseTable(formatTable({ ...table, entries })), reason);
    });
  }

  it('is overridden by a later table, product by product', () => {
    const later = { ...entry, best: 'stream' };
    assert.deepEqual(
      mergeEntries(table.entries, [later]).map((each) => [productText(each), each.best]),
      [
        ['bfloat16 nt 1 16 4096 4096', 'stream'],
        ['bfloat16 nt 1 128 4096 4096', 'wgmma:128x128,split=2'],
      ],
    );
  });

  it('drops algorithm numbers of another cuBLASLt version', () => {
    const later = { ...table, library: 130200, entries: [{ ...entry, m: 1, best: 'library:5' }] };
    const merged = mergeTables([table, later]);
    assert.equal(merged.library, 130200);
    assert.deepEqual(
      merged.entries.map(({ best }) => best),
      ['library', 'wgmma:128x128,split=2', 'library:5'],
    );
  });
});

describe('the files of tables', () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-tables-'));
  const file = path.join(folder, tableFileName(gpu));
  const found = () => findTables(addon, gpu, { SHARDWISE_TUNE_CACHE: folder });
  beforeEach(() => rmSync(file, { force: true }));
  after(() => rmSync(folder, { recursive: true }));

  it("are in the package and in the user's cache", () => {
    assert.equal(tableFileName(gpu), 'matmul-nvidia-testing-1000-4.json');
    assert.equal(tableFileName({ name: '../..', multiprocessors: 1 }), 'matmul-gpu-1.json');
    assert.equal(tableFolder({ XDG_CACHE_HOME: '/cache', HOME: '/home/me' }), '/cache/shardwise');
    assert.equal(
      tableFolder({ XDG_CACHE_HOME: 'relative', HOME: '/home/me' }),
      '/home/me/.cache/shardwise',
    );
    assert.equal(
      tableFolder({ SHARDWISE_TUNE_CACHE: '/tables', XDG_CACHE_HOME: '/cache' }),
      '/tables',
    );
    assert.equal(tableFolder({ SHARDWISE_TUNE_CACHE: 'off' }), null);
    assert.deepEqual(tablePaths(gpu, { SHARDWISE_TUNE_CACHE: 'off' }), [
      path.join(packageFolder(), 'native', 'tables', tableFileName(gpu)),
    ]);
    assert.equal(tablePaths(gpu, { SHARDWISE_TUNE_CACHE: folder })[1], file);
  });

  it('are optional', () => assert.deepEqual(found(), { files: [], tables: [] }));

  it('are read', () => {
    writeFileSync(file, formatTable(table));
    assert.deepEqual(found(), {
      files: [{ path: file, entries: 2 }],
      tables: [{ path: file, table }],
    });
  });

  const useless: [string, string, RegExp][] = [
    ['are cut off', formatTable(table).slice(0, 200), /not JSON/],
    ['are empty', '', /not JSON/],
    [
      'are of another version of the kernels',
      formatTable({ ...table, configurations: 6 }),
      /configurations of version 6, this build has version 7/,
    ],
    [
      'are of another GPU',
      formatTable({ ...table, gpu: { ...gpu, multiprocessors: 8 } }),
      /for NVIDIA Testing 1000 with 8 multiprocessors/,
    ],
  ];
  for (const [what, text, reason] of useless) {
    it(`are ignored with the reason if they ${what}`, () => {
      writeFileSync(file, text);
      const { files, tables } = found();
      assert.deepEqual(tables, []);
      assert.equal(files[0]?.path, file);
      assert.match((files[0] as { ignored: string }).ignored, reason);
    });
  }

  it('are ignored if they are a folder', () => {
    mkdirSync(file);
    assert.match((found().files[0] as { ignored: string }).ignored, /EISDIR/);
    rmSync(file, { recursive: true });
  });

  it('are valid in the package', () => {
    const shipped = path.join(packageFolder(), 'native', 'tables');
    for (const name of readdirSync(shipped)) {
      const read = parseTable(readFileSync(path.join(shipped, name), 'utf8'));
      assert.equal(tableFileName(read.gpu), name);
      assert.equal(new Set(read.entries.map(productText)).size, read.entries.length);
    }
  });
});
