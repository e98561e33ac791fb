/**
 * The decision records agree with the code. A record lists its constants in a table of name, value
 * and file; the value of each is read from its declaration in TypeScript or C++.
 */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { root } from '../../scripts/check-tree.js';

const folder = path.join(root, 'docs', 'decisions');
const records = readdirSync(folder).filter((name) => name.endsWith('.md'));
const read = (...names: string[]): string => readFileSync(path.join(root, ...names), 'utf8');

const UNITS: Readonly<Record<string, number>> = { KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 };

/** `16 MiB`, `1.25` and `2000 ms for a token` as numbers. */
function promised(text: string): number {
  const [, number, unit = ''] = /^([\d,.]+)(?: (\w+))?/.exec(text) ?? [];
  return Number(number?.replaceAll(',', '')) * (UNITS[unit] ?? 1);
}

/** The value of a constant: numbers, products and powers; nanoseconds are given in milliseconds. */
function declared(name: string, source: string): number {
  const found = new RegExp(`(?:const|constexpr)[^=;\\n]*\\b${name} = ([^;]+);`).exec(source)?.[1];
  assert.ok(found !== undefined, `${name} is not declared`);
  const text = found.replaceAll(/(\d)'(\d)/g, '$1$2').replaceAll(/\bkMs\b/g, '1');
  const number = text.replace(/^std::chrono::milliseconds\((\d+)\)$/, '$1');
  assert.match(number, /^[\d\s.*_]+$/, `${name} is ${found}, not a number`);
  return number
    .replaceAll('_', '')
    .split(/(?<!\*)\*(?!\*)/)
    .map((factor) => factor.split('**').map(Number))
    .reduce((product, [base = Number.NaN, power = 1]) => product * base ** power, 1);
}

describe('decision records', () => {
  for (const record of records) {
    const text = read('docs', 'decisions', record);

    it(`${record} has a decision, the number that decided and when to revisit it`, () => {
      assert.match(text, /^# \d+\. /);
      for (const part of ['**Decision.**', '**The number.**', '**Revisit**'])
        assert.ok(text.includes(part), `${record} has no ${part}`);
    });

    it(`${record} names files that exist`, () => {
      const named = text.matchAll(/`((?:lib|native|test|docs|scripts|bench)\/[\w./-]+)`/g);
      const missing = [...named].flatMap(([, file = '']) =>
        existsSync(path.join(root, file)) ? [] : [file],
      );
      assert.deepEqual(missing, []);
    });

    for (const [, name = '', value = '', file = ''] of text.matchAll(
      /^\| `(\w+)` \| (.+?) \| (\S+) \|$/gm,
    ))
      it(`${record} gives the value that ${name} has in ${file}`, () => {
        assert.equal(declared(name, read(file)), promised(value));
      });
  }

  it('are numbered one after the other', () => {
    assert.deepEqual(
      records.map((name) => Number(name.slice(0, 4))),
      records.map((_, i) => i + 1),
    );
  });
});
