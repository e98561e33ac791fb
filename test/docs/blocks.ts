/** The TypeScript blocks of the README and of docs/. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..', '..');
const pages = [
  'README.md',
  ...readdirSync(path.join(root, 'docs'))
    .filter((f) => f.endsWith('.md'))
    .map((f) => path.join('docs', f)),
];

export interface Block {
  page: string;
  /** From 1. */
  number: number;
  code: string;
  /** A name for a file of it. */
  file: string;
}

export const blocks: readonly Block[] = pages.flatMap((page) =>
  [...readFileSync(path.join(root, page), 'utf8').matchAll(/```ts\n([\s\S]*?)```/g)].map(
    (m, i) => ({
      page,
      number: i + 1,
      code: m[1] as string,
      file: `${page.replace(/\W/g, '-')}-${i + 1}.mts`,
    }),
  ),
);
