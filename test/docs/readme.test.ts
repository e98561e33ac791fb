/**
 * The three programs of the README, on the CPU, on a GPU and on a mesh of four ranks, and its table
 * of figures.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { median } from '../../bench/figures.js';
import type { Report } from '../../bench/gpus/table.js';
import { cuda } from '../../lib/index.js';
import { loader } from '../run-program.js';
import { blocks, ofThisCheckout, root } from './blocks.js';

const folder = path.join(root, '.dev', 'readme');
const programs = blocks.filter(({ page }) => page === 'README.md');
const [onCpu = '', onGpu = '', onMesh = ''] = programs.map(({ code }) => code);

async function printed(code: string, ...command: string[]): Promise<string> {
  const file = path.join(folder, `train-${command.length}.mts`);
  writeFileSync(file, ofThisCheckout(code));
  const args = [...loader, ...command, file];
  const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: 120_000 });
  return stdout;
}

describe('the programs of README.md', function () {
  this.timeout(120_000);
  const promised = Number(/console\.log\(.*\/\/ ([\d.]+)$/m.exec(onCpu)?.[1]);
  const isPromised = (line: string): void =>
    assert.ok(Math.abs(Number(line) - promised) < 1e-4, `${line}, not ${promised}`);

  before(() => void mkdirSync(folder, { recursive: true }));
  after(() => rmSync(folder, { recursive: true, force: true }));

  it('are one of twelve lines, a diff of two lines for a GPU and a diff of three lines for a mesh', () => {
    const lines = onCpu.trim().split('\n');
    const isNew = (line: string): boolean => !lines.includes(line);
    assert.equal(lines.length, 12);
    assert.equal(programs.length, 3);
    assert.equal(onGpu.trim().split('\n').filter(isNew).length, 2);
    assert.equal(onMesh.trim().split('\n').filter(isNew).length, 3);
  });

  it('print the loss of the page on the CPU', async () => {
    isPromised(await printed(onCpu));
  });

  it('print the loss of the page after the diff for a GPU', async () => {
    isPromised(await printed(cuda.isAvailable() ? onGpu : onGpu.replaceAll("'cuda'", "'cpu'")));
  });

  it('print the loss of the page on all four ranks after the diff for a mesh', async () => {
    const main = path.join(root, 'lib', 'cli', 'main.ts');
    const lines = (await printed(onMesh, main, 'run', '--nproc-per-node', '4')).trim().split('\n');
    const ranks = lines.map((line) => /^\[(\d)\] (.*)$/.exec(line)?.slice(1) ?? [line]);
    assert.deepEqual(ranks.map(([rank]) => rank).sort(), ['0', '1', '2', '3']);
    for (const [, loss = ''] of ranks) isPromised(loss);
  });
});

const read = (page: string): string => readFileSync(path.join(root, page), 'utf8');

/** The numbers of the first cells behind the name of a row, in order. */
function figuresOf(page: string, row: string, cells: number): number[] {
  const line = read(page)
    .split('\n')
    .find((each) => each.startsWith(`| ${row} |`));
  assert.ok(line !== undefined, `${page} has no row "${row}"`);
  const texts = line.split('|').slice(2, 2 + cells);
  return texts.flatMap((text) =>
    [...text.replaceAll(',', '').matchAll(/[\d.]+/g)].map(([number]) => Number(number)),
  );
}

const measured = (row: string): number[] => figuresOf('docs/performance.md', row, 2).slice(0, 2);

describe('the figures of README.md', () => {
  const readme = (row: string): number[] => figuresOf('README.md', row, 2);

  it('are those of docs/performance.md', () => {
    const [ours, torch] = measured('attention, causal, bfloat16, d 128, 2 x 16 x 8192');
    const [oursBack, torchBack] = measured(
      'attention backward, causal, bfloat16, d 128, 2 x 16 x 8192',
    );
    assert.deepEqual(readme('causal attention 2 x 16 x 8192 x 128, forward / backward'), [
      ours,
      oursBack,
      torch,
      torchBack,
    ]);
    assert.deepEqual(
      readme('matmul 8192 x 14336 x 4096'),
      measured('matmul nt, bfloat16, 8192 x 14336 x 4096'),
    );
    assert.deepEqual(readme('softmax 8192 x 4096'), measured('softmax, bfloat16, 8192 x 4096'));
    assert.deepEqual(
      readme('all-reduce of 1 MiB, 4 GPUs'),
      measured('all-reduce of 1 MiB, 4 ranks'),
    );
    const dtensor = 'DTensor matmul, Shard(0) by Replicate, 4 ranks';
    assert.deepEqual(
      readme('host time of a DTensor matmul, 4 GPUs'),
      figuresOf('docs/performance.md', dtensor, 4).slice(-2),
    );
  });

  it('are those of the newest training step', () => {
    const file = readdirSync(path.join(root, 'bench', 'results'))
      .filter((name) => /^[\d-]+nvidia-h200-training\.json$/.test(name))
      .sort()
      .at(-1) as string;
    assert.ok(read('README.md').includes(`/bench/results/${file})`), `no link to ${file}`);
    const report = JSON.parse(read(`bench/results/${file}`)) as Pick<Report, 'date' | 'rows'>;
    const row = report.rows.find(({ name }) => name === 'one-124m');
    const figures = (side: string, mode: string): number[] => {
      const found = row?.modes.find((each) => each.side === side && each.mode === mode);
      return [found?.stepMs, found?.peakGiB].map((of) => Math.round(10 * median(of ?? [])) / 10);
    };
    assert.deepEqual(readme(`GPT-2 124M step of 16 x 1024 tokens, ${report.date}`), [
      ...figures('ours', 'default'),
      ...figures('torch', 'compile'),
    ]);
  });
});
