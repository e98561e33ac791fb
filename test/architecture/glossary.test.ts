/** The check of words: what it refuses, what it allows, and that the tree keeps the glossary. */
import assert from 'node:assert/strict';
import { describe, it } from 'mocha';
import { glossaryFindings, parseGlossary, violations } from '../../scripts/check-glossary.js';
import { skipWithoutTools } from '../skip.js';

const glossary = parseGlossary(`## Glossary

| not | but | except |
| --- | --- | --- |
| \`cut\`, cut along | shard | min cut |
| \`row team\` | cooperative group | |
`);
const found = (source: string): number => violations('x.ts', source, glossary).length;

describe('the glossary check', () => {
  it('refuses a word in any part of an identifier, also in the expressions of a template', () => {
    assert.equal(found('const cutDim = 1;'), 1);
    assert.equal(found('int32_t last_cut_;'), 1);
    assert.equal(found(['const text = `dim $', '{cutDim}`;'].join('')), 1);
    assert.equal(found('struct RowTeam {};'), 1);
  });

  it('refuses a phrase in a message and leaves comments alone', () => {
    assert.equal(found("throw new Error('the tensor is cut along dim 0');"), 1);
    assert.equal(found('// the tensor is cut along dim 0'), 0);
    assert.equal(found("import { x } from './cut-along.js';"), 0);
  });

  it('allows a phrase of the last column, and longer words', () => {
    assert.equal(found('minCutPartition(cutter, shortcut);'), 0);
  });

  it('names the file, the line and the word to use', () => {
    assert.match(
      violations('lib/a.ts', '\nlet cut;', glossary)[0] as string,
      /^lib\/a\.ts:2: .*shard/,
    );
  });

  it('finds nothing in lib and native', function () {
    skipWithoutTools(this, 'git');
    assert.deepEqual(glossaryFindings(), []);
  });
});
