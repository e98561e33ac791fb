/** The TypeScript blocks of README.md, CONTRIBUTING.md and docs/, and the diffs between them. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..', '..');
const pages = [
  'README.md',
  ...readdirSync(path.join(root, 'docs'))
    .filter((f) => f.endsWith('.md'))
    .map((f) => path.join('docs', f)),
];

export interface Block {
  page: string;
  /** Counts the TypeScript blocks and diffs of a page, from 1. */
  number: number;
  /** A diff is applied to the TypeScript block before it. */
  kind: 'ts' | 'diff';
  /** A whole program; of a diff, the program after it. */
  code: string;
  /** The name of a file that can hold the program. */
  file: string;
}

/** Applies a diff without line numbers: hunks are separated by lines that begin with `@@`. */
export function patched(program: string, diff: string): string {
  return diff.split(/^@@.*\n/m).reduce((text, hunk) => {
    const side = (mark: string): string =>
      [...hunk.matchAll(/^([ +-])(.*\n)/gm)]
        .filter(([, at]) => at === ' ' || at === mark)
        .map(([, , line]) => line)
        .join('');
    const before = side('-');
    if (before === '' || text.split(before).length !== 2)
      throw new Error(`a hunk has to match one place of the program:\n${hunk}`);
    return text.replace(before, () => side('+'));
  }, program);
}

function blocksOf(page: string): Block[] {
  const text = readFileSync(path.join(root, page), 'utf8');
  let program = '';
  return [...text.matchAll(/```(ts|diff)\n([\s\S]*?)```/g)].map(([, kind, body = ''], i) => {
    if (kind === 'ts') program = body;
    return {
      page,
      number: i + 1,
      kind: kind as Block['kind'],
      code: kind === 'ts' ? body : patched(program, body),
      file: `${page.replace(/\W/g, '-')}-${i + 1}.mts`,
    };
  });
}

export const blocks: readonly Block[] = pages.flatMap(blocksOf);

/** The program as a file of .dev/docs has to import the library. */
export const ofThisCheckout = (code: string): string =>
  code.replaceAll(/'shardwise(?:\/([\w-]+))?'/g, (_, entry?: string) => {
    const file = entry === 'distributed' ? entry : path.posix.join(entry ?? '', 'index');
    return `'../../lib/${file}.js'`;
  });
