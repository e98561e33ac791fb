/** The map of folders in ARCHITECTURE.md is that of the rules and of the tree. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { root } from '../../scripts/check-tree.js';

const read = (name: string): string => readFileSync(path.join(root, name), 'utf8');
const quoted = (text: string): string[] =>
  [...text.matchAll(/[`']([^`']+)[`']/g)].map(([, name = '']) => name);

/** The rows of the table whose head begins with this cell. */
function rowsOf(head: string): string[][] {
  const table = read('ARCHITECTURE.md').split(`| ${head} | holds |`)[1]?.split('\n\n')[0] ?? '';
  return table
    .split('\n')
    .slice(2)
    .map((row) => row.split('|').map((cell) => cell.trim()))
    .map((cells) => cells.slice(1, -1));
}

/** The layers of .dependency-cruiser.cjs with what each may import. */
function layers(): Map<string, string[]> {
  const [, body = ''] =
    /^const layers = \{\n([\s\S]*?)\n\};/m.exec(read('.dependency-cruiser.cjs')) ?? [];
  return new Map(
    body.split(/,\n(?= {2}['\w-]+:)/).map((line) => {
      const [name = '', imports = ''] = line.trim().split(': [');
      return [name.replaceAll("'", ''), quoted(imports)];
    }),
  );
}

const foldersOf = (name: string): string[] =>
  readdirSync(path.join(root, name), { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map((entry) => entry.name)
    .sort();

describe('the map in ARCHITECTURE.md', () => {
  it('says what each layer may import, as .dependency-cruiser.cjs does', () => {
    const rules = layers();
    const said = new Map(
      rowsOf('lib').flatMap(([names = '', , imports = '']) =>
        quoted(names).map((name) => [name, quoted(imports)] as const),
      ),
    );
    for (const [layer, imports] of rules)
      assert.deepEqual(
        said.get(layer)?.filter((name) => name !== 'index.ts'),
        imports,
        layer,
      );
  });

  it('has every folder of lib and native', () => {
    const named = (head: string): string[] =>
      rowsOf(head).flatMap(([names = '']) => quoted(names).filter((name) => !name.endsWith('.ts')));
    assert.deepEqual(named('lib').sort(), foldersOf('lib'));
    assert.deepEqual(named('native').sort(), foldersOf('native'));
  });
});
