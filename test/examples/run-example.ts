/** Runs an example in its own process, as a user starts it. */
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { loader } from '../run-program.js';

const here = fileURLToPath(import.meta.url);

/** The file of an example, by its name. */
export function exampleFile(name: string): string {
  return path.resolve(path.dirname(here), `../../examples/${name}${path.extname(here)}`);
}

/** Runs an example. Returns its output and exit status. */
export function runExample(
  name: string,
  ...args: string[]
): { status: number | null; stdout: string; stderr: string } {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [...loader, exampleFile(name), ...args],
    { encoding: 'utf8' },
  );
  return { status, stdout, stderr };
}
