/** Runs one side's program within a limit of time, and hands on each JSON object that it prints. */
import { spawn } from 'node:child_process';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { python } from '../figures.js';

const here = fileURLToPath(import.meta.url);
const folder = path.dirname(path.dirname(here));
/** How long a program that was told to end may take. */
const GRACE_MS = 8_000;
const KEPT_LINES = 12;

export interface Program {
  readonly command: string;
  readonly args: readonly string[];
}

/** A program of this folder's parent, such as gpus/train. */
export const ours = (name: string, ...args: string[]): Program => ({
  command: process.execPath,
  args: [...process.execArgv, path.join(folder, name + path.extname(here)), ...args],
});

/** A Python program of the same folder, on so many ranks. */
export const theirs = (ranks: number, name: string, ...args: string[]): Program => ({
  command: python() ?? 'python3',
  args: [
    ...['-m', 'torch.distributed.run', '--nproc-per-node', String(ranks)],
    ...[path.join(folder, `${name}.py`), ...args],
  ],
});

/** Runs a program. Resolves to the reason of its failure, or to null. */
export function run(
  { command, args }: Program,
  seconds: number,
  heard: (line: object) => void,
): Promise<string | null> {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], detached: true });
  const last: string[] = [];
  createInterface(child.stdout).on('line', (line) => {
    if (line.startsWith('{"name"')) heard(JSON.parse(line) as object);
  });
  createInterface(child.stderr).on('line', (line) => {
    if (/^\S*(Error|Exception)\b|Error:|error:/.test(line) || last.length === 0) last.push(line);
    if (last.length > KEPT_LINES) last.shift();
  });
  let late = false;
  const end = (signal: NodeJS.Signals): void => {
    late = true;
    try {
      process.kill(-(child.pid as number), signal);
    } catch {
      // it has ended
    }
  };
  const timers = [
    setTimeout(() => end('SIGTERM'), seconds * 1e3),
    setTimeout(() => end('SIGKILL'), seconds * 1e3 + GRACE_MS),
  ];
  return new Promise((resolve) => {
    const ended = (reason: string | null): void => {
      timers.forEach(clearTimeout);
      resolve(late ? `ended after ${seconds} s` : reason);
    };
    child.on('error', (error) => ended(error.message));
    child.on('close', (status) => ended(status === 0 ? null : last.join('\n') || `exit ${status}`));
  });
}
