/** Programs that tests start get the library as a bundle (scripts/typescript-bundle.mjs). */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { root } from '../../scripts/check-tree.js';
import { loader } from '../run-program.js';

const parent = path.join(root, '.dev');

function run(code: string, env: Record<string, string> = {}): { stdout: string; stderr: string } {
  mkdirSync(parent, { recursive: true });
  const folder = mkdtempSync(path.join(parent, 'bundles-'));
  try {
    const file = path.join(folder, 'program.ts');
    writeFileSync(file, code);
    return spawnSync(process.execPath, [...loader, file], {
      encoding: 'utf8',
      env: { ...process.env, ...env },
    });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

describe('a program that a test starts', function () {
  this.timeout(60_000);
  if (loader.length === 0) return; // compiled tests start JavaScript, without a loader

  it('has one copy of the library, whatever modules of it are imported', () => {
    const { stdout, stderr } = run(`
      import { ones, Tensor } from '../../lib/index.js';
      import { Tensor as Same } from '../../lib/core/tensor.js';
      const { rand } = await import('../../lib/index.js');
      console.log(Same === Tensor, rand([2]) instanceof Same, Tensor.name, String(ones([1])));
    `);
    assert.equal(stderr, '');
    assert.match(stdout, /^true true Tensor tensor\(\[1\.\]\)/);
  });

  it('gets errors with its own lines', () => {
    const { stdout } = run(`import { ones } from '../../lib/index.js';
      try {
        ones([2]).add(ones([3]));
      } catch (error) {
        console.log((error as Error).stack);
      }`);
    assert.match(stdout, /program\.ts:3:\d+/);
    assert.doesNotMatch(stdout, /bundles\/\w+\/dist/);
  });

  it('is refused a module that would be a second copy', () => {
    const code = `import { ones } from '../../lib/index.js';
      const name = 'tensor';
      const { Tensor } = await import(\`../../lib/core/\${name}.js\`);
      console.log(ones([1]) instanceof Tensor);`;
    assert.match(run(code).stderr, /would be a second copy beside the bundle of the library/);
    assert.equal(run(code, { SHARDWISE_TEST_BUNDLES: 'off' }).stdout, 'true\n');
  });
});
