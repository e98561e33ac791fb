/** Shared by the harnesses: medians, finding a PyTorch to compare with, and storing figures. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const folder = path.dirname(fileURLToPath(import.meta.url));

/** The median; for an even number of values the mean of the two in the middle. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const [low, high] = [sorted[(sorted.length - 1) >> 1], sorted[sorted.length >> 1]] as [
    number,
    number,
  ];
  return (low + high) / 2;
}

let found: string | null | undefined;

/**
 * A Python that has torch: that of the variable PYTHON, or the first on the path. Cached, because
 * the import takes seconds.
 */
export function python(): string | null {
  if (found !== undefined) return found;
  const candidates = [process.env['PYTHON'], 'python3', '/usr/bin/python3'].filter(
    (each) => each !== undefined,
  );
  found = candidates.find((each) => spawnSync(each, ['-c', 'import torch']).status === 0) ?? null;
  return found;
}

/** The version of torch in that Python. */
export function torchVersion(): string {
  const { stdout } = spawnSync(
    python() ?? 'python3',
    ['-c', 'import torch; print(torch.__version__)'],
    { encoding: 'utf8' },
  );
  return stdout?.trim() ?? '';
}

/** The JSON objects that a program prints, one a line; none, with a message, if it fails. */
export function printedBy<T>(command: string, args: readonly string[]): T[] {
  const { status, stdout, stderr, error } = spawnSync(command, args, { encoding: 'utf8' });
  if (status !== 0) {
    const reason = error?.message ?? stderr.trim().split('\n').pop() ?? status;
    console.error(`${[command, ...args].join(' ')} failed: ${reason}`);
    return [];
  }
  const lines = stdout.split('\n').filter((line) => line.startsWith('{'));
  return lines.map((line) => JSON.parse(line) as T);
}

/** What a Python program of this folder prints; none without a PyTorch. */
export function printedByPeer<T>(file: string, args: readonly string[]): T[] {
  const interpreter = python();
  return interpreter === null ? [] : printedBy(interpreter, [path.join(folder, file), ...args]);
}

/** The date as 2026-11-21. */
export const today = (): string => new Date().toISOString().slice(0, 10);

/** The measured commit; without a checkout, the variable COMMIT. */
export function commit(): string {
  const git = spawnSync('git', ['rev-parse', '--short', 'HEAD'], { encoding: 'utf8' });
  return git.status === 0 ? git.stdout.trim() : (process.env['COMMIT'] ?? 'unknown');
}

/** The file in the checkout for a machine, a subject and today. */
function fileOf(machine: string, subject: string): string {
  const folder = process.env['BENCH_RESULTS'] ?? path.join(process.cwd(), 'bench', 'results');
  return path.join(
    folder,
    `${today()}-${`${machine}-${subject}`.replace(/\W+/g, '-').toLowerCase()}.json`,
  );
}

/** The figures stored today, or null. */
export function kept<T>(machine: string, subject: string): T | null {
  const file = fileOf(machine, subject);
  return existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as T) : null;
}

/** Replaces the figures stored today. Returns the file. */
export function store(machine: string, subject: string, figures: object): string {
  const file = fileOf(machine, subject);
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, `${JSON.stringify(figures, null, 2)}\n`);
  return file;
}

/** Stores figures and prints the file. */
export function keep(machine: string, subject: string, figures: object): void {
  console.log(`kept in ${path.relative(process.cwd(), store(machine, subject, figures))}`);
}
