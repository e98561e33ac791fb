/** The three programs of the README: on the CPU, on a GPU, and on a mesh of four ranks. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
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
  const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: 60_000 });
  return stdout;
}

describe('the programs of README.md', function () {
  this.timeout(60_000);
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
