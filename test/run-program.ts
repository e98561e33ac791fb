/**
 * Runs a test program in its own process, where no other test has left memory behind and a crash is
 * allowed.
 */
import { execFile } from 'node:child_process';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const here = fileURLToPath(import.meta.url);

/** Node's arguments for TypeScript; none where tests are compiled to JavaScript. */
export const loader: readonly string[] = here.endsWith('.ts')
  ? ['--import', new URL('../scripts/typescript.mjs', import.meta.url).href]
  : [];

/** Node's arguments for a program of this folder, without its extension. */
export function programArguments(name: string): string[] {
  return [...loader, path.join(path.dirname(here), `${name}${path.extname(here)}`)];
}

const MOST_MS = 120_000;

/** Variables in addition to those of this process. */
type Environment = Readonly<Record<string, string>>;

/** What the program prints. One that hangs is ended. */
export function programOutput(name: string, ...args: string[]): Promise<string> {
  return outputWith({}, name, ...args);
}

async function outputWith(env: Environment, name: string, ...args: string[]): Promise<string> {
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [...programArguments(name), ...args],
    { timeout: MOST_MS, killSignal: 'SIGKILL', env: { ...process.env, ...env } },
  );
  return stdout;
}

/** What the program prints, a line of JSON. */
export async function runProgram<T>(name: string, ...args: string[]): Promise<T> {
  return JSON.parse(await programOutput(name, ...args)) as T;
}

/** The same with more environment variables. */
export async function runProgramWith<T>(
  env: Environment,
  name: string,
  ...args: string[]
): Promise<T> {
  return JSON.parse(await outputWith(env, name, ...args)) as T;
}
