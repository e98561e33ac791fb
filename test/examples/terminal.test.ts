/** Ctrl-C in an example leaves a terminal as it was, with whole messages. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { skipWithoutTools } from '../skip.js';

const quoted = (word: string): string => `'${word}'`;

/** Runs a program in a pseudo-terminal, and types Ctrl-C when it has printed a pattern. */
async function interrupted(
  args: readonly string[],
  columns: number,
  pattern: RegExp,
): Promise<string> {
  const command = [process.execPath, '--import', './scripts/typescript.mjs', ...args];
  const inTerminal = `stty cols ${columns} rows 30; ${command.map(quoted).join(' ')}`;
  const terminal = spawn('script', ['-qec', inTerminal, '/dev/null'], {
    env: { ...process.env, TERM: 'xterm-256color' },
  });
  let output = '';
  let isTyped = false;
  terminal.stdout.on('data', (data: Buffer) => {
    output += data;
    if (isTyped || !pattern.test(stripVTControlCharacters(output))) return;
    isTyped = true;
    terminal.stdin.write('\x03');
  });
  await once(terminal, 'close');
  assert.ok(isTyped, output);
  return output;
}

/** Whether a mode of the terminal is on where an output ends. */
const isOn = (output: string, mode: number): boolean =>
  output.lastIndexOf(`\x1b[?${mode}l`) <= output.lastIndexOf(`\x1b[?${mode}h`);
const [CURSOR, LINE_WRAP] = [25, 7];

describe('Ctrl-C in a terminal', function () {
  this.timeout(120_000);
  let folder: string;

  before(function () {
    folder = mkdtempSync(path.join(tmpdir(), 'shardwise-terminal-'));
    skipWithoutTools(this, 'script');
  });
  after(() => rmSync(folder, { recursive: true }));

  for (const columns of [80, 130])
    it(`of ${columns} columns prints the whole command to go on, and leaves cursor and line wrap`, async () => {
      const out = path.join(folder, `gpt-${columns}`);
      const args = ['examples/train-gpt.ts', '--device', 'cpu', '--batch', '2', '--out', out];
      const output = await interrupted(args, columns, / [2-9]\/\d+ loss/);
      assert.ok(isOn(output, CURSOR) && isOn(output, LINE_WRAP), JSON.stringify(output));
      const end = output.indexOf('SIGINT: saving');
      assert.ok(end > 0 && isOn(output.slice(0, end), LINE_WRAP), JSON.stringify(output));
      const lines = stripVTControlCharacters(output.slice(end)).split('\r\n');
      const saved = path.join(out, 'checkpoints', 'step-');
      assert.match(lines[0] as string, /^SIGINT: saving at the end of the next step; a second/);
      assert.match(String(lines[1]), new RegExp(`^SIGINT: saved ${saved}\\d+\\. To go on: node `));
      assert.ok(lines[1]?.endsWith(`--batch 2 --out ${out} --resume`), lines[1]);
    });
});
