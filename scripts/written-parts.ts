/** Files that scripts write, whole or between marks, and checks that they are current. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const [START, END] = ['<!-- Written by `npm run generate`. -->\n', '<!-- End. -->\n'];

/** The page of docs with these texts between its marks, in order. @throws for other marks */
export function withParts(page: string, texts: readonly string[]): string {
  const [before, ...rest] = page.split(START);
  const after = rest.map((part) => part.split(END));
  if (rest.length !== texts.length || after.some((parts) => parts.length !== 2))
    throw new Error(`expected ${texts.length} parts between ${START} and ${END}`);
  return [before, ...after.map(([, then], i) => `${START}${texts[i]}${END}${then}`)].join('');
}

/**
 * Writes a file; with `--check` in the command line, reports one that differs. `of` gets the text that
 * the file has. Returns the exit status.
 */
export function writeOrCheck(path: string, of: (text: string) => string): 0 | 1 {
  const file = fileURLToPath(new URL(`../${path}`, import.meta.url));
  const text = existsSync(file) ? readFileSync(file, 'utf8') : '';
  const written = of(text);
  if (!process.argv.includes('--check')) writeFileSync(file, written);
  else if (written !== text) {
    console.error(`${path} is not what the code and bench/results give: run npm run generate`);
    return 1;
  }
  return 0;
}
