/**
 * Runs every TypeScript block of the README and of docs/ as it stands, and every `@example` of lib/.
 * readme.test.ts runs the diffs; test/packaging checks the types of all as a user's compiler does.
 */
import assert from 'node:assert/strict';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { blocks, ofThisCheckout, root } from './blocks.js';
import { examples, shown } from './examples.js';

const folder = path.join(root, '.dev', 'docs');

describe('the documentation', () => {
  const log = console.log;
  before(() => {
    mkdirSync(folder, { recursive: true });
    console.log = () => {};
  });
  after(() => {
    console.log = log;
    rmSync(folder, { recursive: true, force: true });
  });

  for (const { page, number, code, file } of blocks.filter(({ kind }) => kind === 'ts')) {
    it(`runs in block ${number} of ${page}`, async function () {
      this.timeout(30000);
      const written = path.join(folder, file);
      writeFileSync(written, ofThisCheckout(code));
      await import(pathToFileURL(written).href);
    });
  }

  it('has diffs in README.md only, which other tests run', () => {
    const pages = blocks.filter(({ kind }) => kind === 'diff').map(({ page }) => page);
    assert.deepEqual([...new Set(pages)], ['README.md']);
  });
});

/** Compares the value of an expression of an example with the comment behind it. */
function result(value: unknown, expected: string): void {
  assert.equal(shown(value), expected);
}

describe('the examples in comments of lib/', () => {
  const cwd = process.cwd();
  const log = console.log;
  before(() => {
    mkdirSync(folder, { recursive: true });
    process.chdir(folder);
    Object.assign(globalThis, { result });
    console.log = () => {};
  });
  after(() => {
    console.log = log;
    Reflect.deleteProperty(globalThis, 'result');
    process.chdir(cwd);
    rmSync(folder, { recursive: true, force: true });
  });

  for (const { place, code, file } of examples) {
    it(`run at ${place}`, async () => {
      const written = path.join(folder, file);
      writeFileSync(written, ofThisCheckout(code));
      await import(pathToFileURL(written).href);
    });
  }
});
