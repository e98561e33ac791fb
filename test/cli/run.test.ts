/** `shardwise run`: processes, several machines, restarts, exit codes. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Command, CommanderError } from 'commander';
import getPort from 'get-port';
import { addRun } from '../../lib/cli/run.js';
import { root } from '../../scripts/check-tree.js';
import { captureOutput } from '../distributed/support/capture-output.js';
import { leakedSegments } from '../distributed/support/leaked-segments.js';
import { programArguments } from '../run-program.js';

const here = fileURLToPath(import.meta.url);
const program = path.join(root, 'test', 'distributed', 'programs', 'ranks.ts');
const command = [...programArguments('../lib/cli/main'), 'run'];
const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-run-'));

interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

function run(...args: string[]): Promise<Ended> {
  const child = spawn(process.execPath, [...command, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const ended: Ended = { code: null, stdout: '', stderr: '' };
  child.stdout.on('data', (text) => (ended.stdout += text));
  child.stderr.on('data', (text) => (ended.stderr += text));
  return new Promise((resolve) => child.once('close', (code) => resolve({ ...ended, code })));
}

/** What the command says to options that it refuses, before anything is started. */
async function refused(...args: string[]): Promise<string> {
  const cli = new Command('shardwise').exitOverride().enablePositionalOptions();
  addRun(cli);
  for (const each of cli.commands) each.exitOverride();
  const before = process.exitCode;
  const { result, text } = await captureOutput(async () => {
    const { error } = console;
    console.error = (line: string) => process.stderr.write(`${line}\n`);
    try {
      await cli.parseAsync(['run', ...args], { from: 'user' });
      return process.exitCode;
    } catch (thrown) {
      assert.ok(thrown instanceof CommanderError, String(thrown));
      return thrown.exitCode;
    } finally {
      console.error = error;
    }
  });
  process.exitCode = before;
  assert.equal(result, 1);
  return text;
}

describe('shardwise run', function () {
  this.timeout(60_000);
  if (!here.endsWith('.ts')) return; // it runs TypeScript by tsx, which compiled tests do without
  after(() => rmSync(folder, { recursive: true }));

  it('prefixes lines with ranks, passes arguments, and exits like the first failed rank', async () => {
    const { code, stdout, stderr } = await run(
      '--nproc-per-node',
      '2',
      '--standalone',
      program,
      'exits',
      folder,
      '--nproc-per-node',
      'x',
    );
    assert.equal(code, 7);
    for (const rank of [0, 1])
      assert.match(
        stdout,
        new RegExp(`^\\[${rank}\\] rank ${rank} of 2, node 0, ${folder} --nproc-per-node x$`, 'm'),
      );
    assert.match(stderr, /^shardwise run: rank 1 \(process \d+\) ended with exit code 7$/m);
  });

  it('creates one world of several nodes, which restart together', async () => {
    const port = String(await getPort({ host: '127.0.0.1' }));
    const node = (rank: number, ranks: string): Promise<Ended> =>
      run(
        '--nnodes',
        '2',
        '--node_rank',
        String(rank),
        '--nproc_per_node',
        ranks,
        '--master_addr',
        '127.0.0.1',
        '--master-port',
        port,
        '--max-restarts',
        '1',
        program,
        'sums',
        folder,
        'once',
      );
    const [first, second] = await Promise.all([node(0, '1'), node(1, '2')]);
    assert.deepEqual([first.code, second.code], [0, 0], first.stderr + second.stderr);
    // Each machine says why: of a rank of its own, or that one of the other has failed.
    for (const { stderr } of [first, second])
      assert.match(
        stderr,
        /^shardwise run: restart 1 of 1 of all ranks, because rank \d (?:\(process \d+\) .+|failed on node \d)$/m,
      );
    const seen = [0, 1, 2].map((rank) =>
      JSON.parse(readFileSync(path.join(folder, `rank-${rank}.json`), 'utf8')),
    );
    assert.deepEqual(seen, [
      { sum: [3, 3], size: 3, node: '0', local: '0', restarts: '1' },
      { sum: [3, 3], size: 3, node: '1', local: '0', restarts: '1' },
      { sum: [3, 3], size: 3, node: '1', local: '1', restarts: '1' },
    ]);
    const ranks = [...`${first.stdout}${second.stdout}`.matchAll(/ process (\d+)$/gm)].map(
      ([, pid]) => Number(pid),
    );
    assert.equal(ranks.length, 6); // three, twice
    assert.deepEqual(leakedSegments(ranks), []);
  });

  it('refuses invalid commands, with advice', async () => {
    assert.match(
      await refused('--nproc-per-node', 'many', program),
      /--nproc-per-node.*whole number from 1 to 64/s,
    );
    assert.match(await refused('--nnodes', '1:2', program), /elastic launch/);
    assert.match(await refused('--nnodes', '2', program), /several machines need --master-addr/);
    assert.match(
      await refused('--nnodes', '2', '--node-rank', '2', '--master-addr', 'h', program),
      /--node-rank from 0 to 1/,
    );
    assert.match(
      await refused('--standalone', '--master-port', '1', program),
      /--standalone is for one machine/,
    );
    assert.match(await refused(), /missing required argument 'script'/);
    assert.match(await refused(path.join(folder, 'none.js')), /there is no file .*none\.js/);
    assert.match(
      await refused('--nnodes', '2', '--master-addr', '10.0.0.1', program),
      /SHARDWISE_STORE_SECRET/,
    );
  });
});
