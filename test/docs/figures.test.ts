/**
 * Times and rates in README.md and docs/ are those of bench/results: a paragraph, an item or a row
 * that has some links to a file there, and the file has them. Generated parts are compared with
 * results by `npm run check`, and the table of README.md by readme.test.ts.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { root } from './blocks.js';

const pages = ['README.md', ...readdirSync(path.join(root, 'docs')).map((file) => `docs/${file}`)]
  .filter((page) => page.endsWith('.md'))
  .filter((page) => page !== 'docs/performance.md');

/** Times and rates that are settings, limits or predictions of a test, not measurements. */
const settings = [
  'docs/backends.md: 100 ms',
  'docs/backends.md: 2,000,000,000 ms',
  'docs/spmd.md: 10 ms',
  'docs/spmd.md: 50 MB/s',
];

const figure = /(?<![\w.-])([\d,]*\d(?:\.\d+)?) (us|ms|[GTM]B\/s|TFLOP\/s|tokens\/s)(?!\w)/g;

/** Paragraphs, items and rows of what is written by hand. */
function partsOf(page: string): string[] {
  return readFileSync(path.join(root, page), 'utf8')
    .replaceAll(/<!-- Written by[\s\S]*?<!-- End. -->/g, '')
    .replaceAll(/^```[\s\S]*?^```/gm, '')
    .split(/\n\n|\n(?=\||- |\d+\. )/)
    .filter((part) => !part.startsWith('|') || !part.includes('`npm run bench:'));
}

/** All numbers of a result. */
function numbersOf(value: unknown): number[] {
  if (typeof value === 'number') return [value];
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(numbersOf) : [];
}

/** The figures of a part that no result has that the part links to. */
function untraced(page: string, part: string): string[] {
  const links = [...part.matchAll(/\]\([^)]*?(bench\/results\/[\w.-]+\.json)\)/g)];
  const measured = links.flatMap(([, file = '']) =>
    numbersOf(JSON.parse(readFileSync(path.join(root, file), 'utf8'))),
  );
  return [...part.matchAll(figure)]
    .filter(([, digits = '']) => {
      const decimals = digits.split('.')[1]?.length ?? 0;
      const stated = Number(digits.replaceAll(',', '')).toFixed(decimals);
      // results have microseconds where pages have milliseconds
      return ![1, 1e-3].some((unit) =>
        measured.some((n) => (n * unit).toFixed(decimals) === stated),
      );
    })
    .map(([text]) => `${page}: ${text}`)
    .filter((text) => !settings.includes(text));
}

describe('times and rates of the pages', () => {
  it('are in the results that the pages link to', () => {
    const found = pages.flatMap((page) => partsOf(page).flatMap((part) => untraced(page, part)));
    assert.deepEqual(found, [], 'link to the file of bench/results that has the figure');
  });
});
