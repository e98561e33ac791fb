/** `shardwise tune` without a GPU: its products, choices and report. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { after, before, describe, it } from 'mocha';
import { describeTuning } from '../../lib/cli/tune.js';
import { entryOf } from '../../lib/cli/tune-measure.js';
import { everydayProducts, parseNames, parseProducts } from '../../lib/cli/tune-products.js';
import { LAYOUTS, type Product, productText } from '../../lib/cuda/matmul-table.js';
import { cuda } from '../../lib/index.js';
import { programArguments } from '../run-program.js';
import { skipBecause } from '../skip.js';

const product: Product = { dtype: 'bfloat16', layout: 'nt', batch: 1, m: 512, n: 4096, k: 4096 };

describe('the products of shardwise tune', () => {
  let folder: string;
  before(() => {
    folder = mkdtempSync(path.join(tmpdir(), 'shardwise-tune-'));
  });
  after(() => rmSync(folder, { recursive: true }));

  const texts = (given: string[]): string[] =>
    parseProducts(given, ['nt'], ['bfloat16']).map(productText);

  it('are read as sizes with an optional batch and layout', () => {
    assert.deepEqual(texts(['64x128x256', '8x64x128x256:tn', '64x128x256']), [
      'bfloat16 nt 1 64 128 256',
      'bfloat16 tn 8 64 128 256',
    ]);
    assert.deepEqual(
      parseProducts(['2x3x4'], ['nt', 'nn'], ['bfloat16', 'float32']).map(productText),
      ['bfloat16 nt 1 2 3 4', 'bfloat16 nn 1 2 3 4', 'float32 nt 1 2 3 4', 'float32 nn 1 2 3 4'],
    );
  });

  it('are read from the lines of a file', () => {
    const file = path.join(folder, 'shapes.txt');
    writeFileSync(file, '# layers\n64x128x256\n\n 1x2x3:nn # one\n');
    assert.deepEqual(texts([file]), ['bfloat16 nt 1 64 128 256', 'bfloat16 nn 1 1 2 3']);
    writeFileSync(file, '64x128x256\n64x128\n');
    assert.throws(
      () => texts([file]),
      /expected a product "MxNxK".*got "64x128" in line 2 of .*shapes\.txt/,
    );
  });

  it('are refused if they are invalid', () => {
    for (const text of [
      '',
      'x',
      '1x2',
      '1x2x3x4x5',
      '0x1x2',
      '1x2x99999999999',
      '1x2x-3',
      '1x2x3:',
      'no-such-file',
    ])
      assert.throws(() => texts([text]), /expected a product "MxNxK"/, text);
    assert.throws(() => texts(['1x2x3:zz']), /expected a layout of nt, nn, tn, tt, got "zz"/);
    assert.throws(
      () => parseNames('nt,xx', LAYOUTS, 'layouts'),
      /expected layouts of nt, nn, tn, tt, got "xx"/,
    );
    assert.deepEqual(parseNames('nt, nn,nt', LAYOUTS, 'layouts'), ['nt', 'nn']);
  });

  it('are by default the linear layers of common models', () => {
    const all = everydayProducts(['bfloat16']).map(productText);
    assert.equal(new Set(all).size, all.length);
    assert.ok(
      all.includes('bfloat16 nt 1 8192 14336 4096') &&
        all.includes('bfloat16 nn 1 8192 4096 14336') &&
        all.includes('bfloat16 tn 1 14336 4096 8192'),
    );
  });
});

describe('the configuration that shardwise tune chooses', () => {
  const choice = (...timed: [string, number][]) =>
    entryOf(
      product,
      timed.map(([name, us]) => ({ name, us })).sort((a, b) => a.us - b.us),
    );

  it("is the fastest, together with the fastest of this library's kernels", () => {
    const { best, own, us, ownUs, libraryUs } = choice(
      ['library', 12],
      ['library:3', 9.004],
      ['wgmma:128x256', 10],
      ['wgmma:128x128', 20],
    );
    assert.deepEqual([best, own, us, ownUs, libraryUs], ['library:3', 'wgmma:128x256', 9, 10, 12]);
  });

  it('is the simplest of equally fast ones', () => {
    assert.equal(
      choice(['library', 10.05], ['library:3', 10], ['wgmma:128x256', 10.2]).best,
      'library',
    );
    assert.equal(
      choice(['library', 10], ['library:3', 10], ['wgmma:128x256', 10.05]).best,
      'wgmma:128x256',
    );
    assert.equal(choice(['library', 10]).own, 'library');
  });

  it("is reported with the runner-up and the rule's choice", () => {
    const timed = [
      { name: 'stream', us: 10 },
      { name: 'library', us: 12 },
    ];
    const text = describeTuning({
      gpu: { name: 'NVIDIA H200', multiprocessors: 132 },
      file: null,
      products: [{ timed, rule: 'library', entry: entryOf(product, timed) }],
      skipped: [{ ...product, k: 3 }],
    });
    assert.match(text, /^NVIDIA H200, 132 multiprocessors$/m);
    assert.match(
      text,
      /^512x4096x4096 nt, bfloat16 +stream +10\.0 us +20\.0 % +library 12\.0 +library 12\.0$/m,
    );
    assert.match(text, /^512x4096x3 nt, bfloat16: uses no table/m);
    assert.match(text, /^nothing was written$/m);
  });
});

describe('shardwise tune without a GPU', function () {
  this.timeout(30_000);

  const tune = async (
    ...args: string[]
  ): Promise<{ code: number; stdout: string; stderr: string }> => {
    try {
      return {
        code: 0,
        ...(await promisify(execFile)(process.execPath, [
          ...programArguments('../lib/cli/main'),
          'tune',
          ...args,
        ])),
      };
    } catch (error) {
      return error as { code: number; stdout: string; stderr: string };
    }
  };

  it('reports it and exits with 1', async function () {
    if (cuda.isAvailable()) return skipBecause(this, 'there is one');
    const { code, stdout, stderr } = await tune('--shapes', '64x64x64');
    assert.equal(code, 1);
    assert.equal(stdout, '');
    assert.match(
      stderr,
      /^shardwise tune: there is no GPU to measure on: .+\. See `npx shardwise doctor`\.$/m,
    );
  });

  it('refuses to run if the environment names a configuration', async () => {
    process.env['SHARDWISE_MATMUL'] = 'own';
    try {
      const { code, stderr } = await tune('--shapes', '64x64x64');
      assert.equal(code, 1);
      assert.match(
        stderr,
        /^shardwise tune: SHARDWISE_MATMUL=own fixes the kernel, so there is nothing to tune; unset it$/m,
      );
    } finally {
      delete process.env['SHARDWISE_MATMUL'];
    }
  });

  it('refuses an invalid product before it looks for a GPU', async () => {
    const { code, stderr } = await tune('--shapes', '64x64');
    assert.equal(code, 1);
    assert.match(stderr, /^shardwise tune: expected a product "MxNxK".*got "64x64"/m);
  });
});
