/**
 * Saves 1.5 GB, 124 million parameters with AdamW, from 4 CPU processes and loads them onto 3, beside
 * `dd` of as many bytes; and how long an asynchronous save stops training. Prints one JSON object.
 * The folder is the argument: a disk to measure.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { launch } from '../lib/distributed.js';

const folder = mkdtempSync(path.join(process.argv[2] ?? tmpdir(), 'shardwise-bench-'));
const extension = path.extname(fileURLToPath(import.meta.url));
const program = new URL(`checkpoint-rank${extension}`, import.meta.url);
const copy = path.join(folder, 'dd');

function dd(...args: string[]): number {
  const start = performance.now();
  execFileSync('dd', ['bs=16M', 'status=none', ...args]);
  return performance.now() - start;
}

const shardFiles = (): string[] =>
  readdirSync(folder).flatMap((name) =>
    name.endsWith('.safetensors') ? [path.join(folder, name)] : [],
  );

/** Makes the system read a file from the disk again. */
function evict(files: readonly string[]): void {
  for (const file of files) dd(`if=${file}`, 'iflag=nocache', 'count=0');
}

const measured = (form: string): Record<string, number> =>
  JSON.parse(readFileSync(path.join(folder, `${form}.json`), 'utf8'));

function writeCopy(bytes: number): number {
  rmSync(copy, { force: true });
  return dd('if=/dev/zero', `of=${copy}`, `count=${Math.ceil(bytes / 2 ** 24)}`, 'conv=fsync');
}

try {
  await launch(4, program, { args: ['save', folder] });
  const saved = measured('save');
  const bytes = shardFiles().reduce((sum, file) => sum + statSync(file).size, 0);
  const ddWriteMs = Math.min(writeCopy(bytes), writeCopy(bytes));
  evict(shardFiles());
  await launch(3, program, { args: ['load', folder] });
  const loaded = measured('load');
  evict(shardFiles());
  const ddReadMs = shardFiles().reduce((ms, file) => ms + dd(`if=${file}`, 'of=/dev/null'), 0);
  const result = {
    bytes,
    ...saved,
    ddWriteMs,
    ...loaded,
    ddReadMs,
    saveOverDd: ddWriteMs / Math.min(saved['saveMs'] as number, saved['saveFirstMs'] as number),
    loadOverDd: ddReadMs / (loaded['loadMs'] as number),
    stallOverStep: (saved['asyncStallMs'] as number) / (saved['stepMs'] as number),
  };
  const rounded = Object.entries(result).map(([name, value]) => [name, +value.toPrecision(4)]);
  console.log(JSON.stringify(Object.fromEntries(rounded)));
} finally {
  rmSync(folder, { recursive: true, force: true });
}
