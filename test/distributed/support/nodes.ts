/**
 * Starts programs on several simulated nodes, as a user would on several machines, and reads the
 * reports of their ranks.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { root } from '../../../scripts/check-tree.js';
import { programArguments } from '../../run-program.js';

const here = fileURLToPath(import.meta.url);
const cli = here.endsWith('.ts')
  ? programArguments('../lib/cli/main')
  : [path.join(root, 'dist', 'cli', 'main.js')];

/** One of them. */
export interface Node {
  /** What runs the command that follows it as another machine would. */
  readonly within: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

/** Runs the command behind it with shared memory of its own. */
export const OWN_MEMORY: readonly string[] = [
  'sh',
  '-c',
  'mount -t tmpfs tmpfs /dev/shm && exec "$@"',
  'sh',
];

export interface NodesOptions {
  /** In `programs`, without ending. */
  readonly program: string;
  readonly args: readonly string[];
  readonly ranksPerNode: number;
  readonly masterAddress: string;
  readonly timeoutMs: number;
}

export interface Run {
  readonly ended: Promise<number | null>[];
  readonly text: () => string;
  readonly stop: () => void;
}

let port = 29_500 + (process.pid % 400);

/** The program on all nodes. */
export function runNodes(
  nodes: readonly Node[],
  { program, args, ranksPerNode, masterAddress, timeoutMs }: NodesOptions,
): Run {
  const file = path.join(path.dirname(here), '..', 'programs', `${program}${path.extname(here)}`);
  const counts = ['--nnodes', String(nodes.length), '--nproc-per-node', String(ranksPerNode)];
  const master = ['--master-addr', masterAddress, '--master-port', String(++port)];
  let text = '';
  const children = nodes.map(({ within: [command = '', ...first], env }, node) => {
    const run = ['run', ...counts, '--node-rank', String(node), ...master, file, ...args];
    const child = spawn(command, [...first, process.execPath, ...cli, ...run], {
      env: {
        ...process.env,
        SHARDWISE_STORE_SECRET: 'two hosts',
        SHARDWISE_TIMEOUT_MS: String(timeoutMs),
        ...env,
      },
    });
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (chunk) => (text += chunk));
    return child;
  });
  const ended = children.map(
    (child) => new Promise<number | null>((resolve) => child.once('close', resolve)),
  );
  return {
    ended,
    text: () => text,
    stop: () => children.forEach((child) => child.kill('SIGKILL')),
  };
}

/** What the ranks have reported, once the test of each holds. */
export async function reports<T>(
  folder: string,
  ranks: readonly number[],
  run: Run,
  holds: (seen: T) => boolean = () => true,
  ms = 60_000,
): Promise<T[]> {
  for (const end = Date.now() + ms; ; await sleep(20)) {
    assert.ok(Date.now() < end, `no reports in time:\n${run.text()}`);
    const seen = ranks.map((rank) => read<T>(path.join(folder, `rank-${rank}.json`)));
    if (seen.every((each) => each !== null && holds(each))) return seen as T[];
  }
}

function read<T>(file: string): T | null {
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as T;
  } catch {
    return null; // not there yet, or half of it
  }
}
