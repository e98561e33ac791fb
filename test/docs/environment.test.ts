/** docs/environment.md names each variable that the sources read. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { globSync } from 'tinyglobby';
import { root } from './blocks.js';

const read = (file: string): string => readFileSync(path.join(root, file), 'utf8');
const namesIn = (text: string): string[] =>
  [...text.matchAll(/(?:getenv\("|env\['|env\.|[^\w])(SHARDWISE_[A-Z_]+[A-Z])\b/g)].map(
    ([, name = '']) => name,
  );

describe('the variables of docs/environment.md', () => {
  it('are those that lib and native name', () => {
    const files = globSync(
      ['lib/**/*.ts', 'native/**/*.{cc,h,cu}', 'scripts/{build-native,platforms}.cjs'],
      {
        cwd: root,
        ignore: ['native/**/selftest/**'],
      },
    );
    const inSources = new Set(files.flatMap((file) => namesIn(read(file))));
    const named = new Set(namesIn(read('docs/environment.md')));
    assert.deepEqual([...named].sort(), [...inSources].sort());
  });
});
