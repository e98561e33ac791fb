/**
 * The harness: runs our rows and PyTorch's in one go, interleaved by round, prints medians and ratios, and keeps them.
 *
 *   npm run bench -- [cpu|cuda] [--rounds N] [--write]
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Command } from 'commander';
import { cuda } from '../lib/index.js';

interface Row {
  name: string;
  burst: number;
  usHost: number;
  usTotal: number;
}

const folder = path.dirname(fileURLToPath(import.meta.url));

/** The rows a program prints, one JSON object a line. */
function rowsOf(command: string, args: readonly string[]): Row[] {
  const { status, stdout } = spawnSync(command, args, { encoding: 'utf8', env: process.env });
  if (status !== 0) return [];
  const lines = stdout.split('\n').filter((line) => line.startsWith('{"name"'));
  return lines.map((line) => JSON.parse(line) as Row);
}

function medians(rounds: readonly Row[][]): Row[] {
  return (rounds[0] ?? []).map((row, i) => {
    const middle = (key: 'usHost' | 'usTotal'): number => {
      const values = rounds.map((r) => r[i]?.[key] ?? Number.NaN).sort((a, b) => a - b);
      return values[values.length >> 1] as number;
    };
    return { ...row, usHost: middle('usHost'), usTotal: middle('usTotal') };
  });
}

function main(): void {
  const program = new Command('bench')
    .argument('[device]', 'cpu or cuda', cuda.isAvailable() ? 'cuda' : 'cpu')
    .option('--rounds <n>', 'how often each side runs', Number, 3)
    .option('--write', 'keep the figures in bench/results', false)
    .parse();
  const device = program.args[0] ?? (cuda.isAvailable() ? 'cuda' : 'cpu');
  const { rounds, write } = program.opts<{ rounds: number; write: boolean }>();
  const extension = path.extname(fileURLToPath(import.meta.url));
  const [ours, torch]: [Row[][], Row[][]] = [[], []];
  for (let i = 0; i < rounds; i++) {
    ours.push(rowsOf(process.execPath, [...process.execArgv, path.join(folder, `overhead${extension}`), device]));
    torch.push(rowsOf('python3', [path.join(folder, 'overhead_torch.py'), device]));
  }
  const [own, peer] = [medians(ours), medians(torch.filter((r) => r.length > 0))];
  console.table(
    own.map((row) => {
      const other = peer.find((p) => p.name === `torch ${row.name}` && p.burst === row.burst);
      return {
        row: row.name,
        burst: row.burst,
        'us, JavaScript thread': row.usHost,
        'us, until done': row.usTotal,
        torch: other?.usTotal ?? '-',
        ratio: other ? +(row.usTotal / other.usTotal).toFixed(2) : '-',
      };
    }),
  );
  if (!write) return;
  const commit = execFileSync('git', ['rev-parse', '--short', 'HEAD'], { cwd: folder, encoding: 'utf8' }).trim();
  const date = new Date().toISOString().slice(0, 10);
  const machine = `${os.cpus()[0]?.model ?? 'unknown'}, ${os.cpus().length} threads, Node ${process.version}${device === 'cuda' ? `, ${cuda.getDeviceProperties().name}` : ''}`;
  const file = path.join(folder, 'results', `${date}-overhead-${device}.json`);
  writeFileSync(file, `${JSON.stringify({ machine, date, commit, rounds, ours: own, torch: peer }, null, 2)}\n`);
  console.log(`kept in ${path.relative(process.cwd(), file)}`);
}

main();
