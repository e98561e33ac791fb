/** Every TypeScript block of the README and of docs/ is run as it stands. */
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..', '..');
const folder = path.join(root, '.dev', 'docs');
const pages = [
  'README.md',
  ...readdirSync(path.join(root, 'docs'))
    .filter((f) => f.endsWith('.md'))
    .map((f) => path.join('docs', f)),
];

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

  for (const page of pages) {
    const blocks = [...readFileSync(path.join(root, page), 'utf8').matchAll(/```ts\n([\s\S]*?)```/g)].map((m) => m[1] as string);
    blocks.forEach((block, i) => {
      it(`runs block ${i + 1} of ${page}`, async function () {
        this.timeout(30000);
        const file = path.join(folder, `${page.replace(/\W/g, '-')}-${i}.mts`);
        writeFileSync(file, block.replaceAll("'shardwise'", "'../../lib/index.js'"));
        await import(pathToFileURL(file).href);
      });
    });
  }
});
