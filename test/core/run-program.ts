/** Runs a program of this folder in a process of its own, where nothing else has left memory behind. */
import { execFile } from 'node:child_process';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const here = fileURLToPath(import.meta.url);

/** What the program prints, a line of JSON. */
export async function runProgram<T>(name: string, ...args: string[]): Promise<T> {
  const file = path.join(path.dirname(here), 'programs', `${name}${path.extname(here)}`);
  const loader = here.endsWith('.ts') ? ['--import', 'tsx'] : [];
  const { stdout } = await promisify(execFile)(process.execPath, [...loader, file, ...args]);
  return JSON.parse(stdout) as T;
}
