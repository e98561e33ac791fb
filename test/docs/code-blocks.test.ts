/**
 * Every TypeScript block of the README and of docs/ is run as it stands. (test/packaging checks its
 * types as a user's compiler does.)
 */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { blocks } from './blocks.js';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..', '..');
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

  for (const { page, number, code, file } of blocks) {
    it(`runs block ${number} of ${page}`, async function () {
      this.timeout(30000);
      const written = path.join(folder, file);
      const own = code
        .replaceAll("'shardwise'", "'../../lib/index.js'")
        .replaceAll("'shardwise/distributed'", "'../../lib/distributed.js'")
        .replaceAll("'shardwise/compile'", "'../../lib/compile/index.js'");
      writeFileSync(written, own);
      await import(pathToFileURL(written).href);
    });
  }
});
