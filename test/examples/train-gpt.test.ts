/** The main job as a user starts it: going on from its one file, and answers in one line to what it cannot do. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { bigramLoss, evaluationStarts, loadText, windowsAt } from '../../examples/gpt/text.js';
import { SafetensorsFile } from '../../lib/index.js';

// As TypeScript, or as JavaScript where tests are compiled.
const here = fileURLToPath(import.meta.url);
const program = path.resolve(path.dirname(here), `../../examples/train-gpt${path.extname(here)}`);
const loader = here.endsWith('.ts') ? ['--import', 'tsx'] : [];
const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-gpt-'));
after(() => rmSync(folder, { recursive: true, force: true }));

function start(...args: string[]): { status: number | null; stdout: string; stderr: string } {
  const { status, stdout, stderr } = spawnSync(process.execPath, [...loader, program, '--device', 'cpu', ...args], { encoding: 'utf8' });
  return { status, stdout, stderr };
}
const json = (...args: string[]): Record<string, number>[] => {
  const { status, stdout, stderr } = start('--json', '--batch', '2', ...args);
  assert.equal(status, 0, stderr);
  return stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
};

describe('examples/train-gpt', () => {
  it('goes on from its checkpoint, which is one file, and judges both models alike whatever the seed and batch', async function () {
    this.timeout(120_000);
    const out = path.join(folder, 'run');
    const first = json('--out', out, '--steps', '2', '--seed', '5');
    assert.deepEqual(
      first.map((line) => line['step']),
      [0, 1, undefined],
    );
    assert.deepEqual(readdirSync(out).sort(), ['checkpoint.safetensors', 'loss.svg']);
    const second = json('--out', out, '--steps', '3', '--resume', '--seed', '6');
    assert.deepEqual(
      second.map((line) => line['step']),
      [2, undefined],
    );
    const [before, after] = [first.at(-1), second.at(-1)];
    assert.ok((second[0]?.['loss'] as number) < (first[0]?.['loss'] as number));
    assert.equal(after?.['firstLoss'], first[0]?.['loss']);
    assert.equal(after?.['bigramLoss'], before?.['bigramLoss']);
    const file = await SafetensorsFile.open(path.join(out, 'checkpoint.safetensors'));
    assert.equal(file.metadata['step'], '3');
    assert.equal((await file.get('optimizer.0.step')).item(), 3);
    await file.close();
    const { status, stderr } = start('--out', out, '--steps', '3', '--resume');
    assert.deepEqual([status, stderr], [1, 'train-gpt: the checkpoint is at step 3 already; give --steps more than that\n']);
  });

  it('says in one line that there is no checkpoint, or none of its own', () => {
    const none = path.join(folder, 'none');
    const missing = start('--resume', '--out', none);
    assert.equal(missing.status, 1);
    assert.match(missing.stderr, /^train-gpt: there is no checkpoint at .*none.checkpoint\.safetensors; run once without --resume.*\n$/);
    writeFileSync(path.join(none, 'checkpoint.safetensors'), 'junk');
    const damaged = start('--resume', '--out', none);
    assert.equal(damaged.status, 1);
    assert.match(damaged.stderr, /^train-gpt: .*not a valid safetensors file.*\n$/);
  });

  for (const [args, message] of [
    [['--lr', 'x'], /--lr.*expected a number above 0/],
    [['--batch', '1.5'], /--batch.*expected a whole number from 1/],
    [['--seed', ''], /--seed.*expected a whole number from 0/],
    [['--device', 'gpu'], /--device.*expected 'cpu', 'cuda'/],
    [['--out', path.join(program, 'x')], /--out .* cannot be used/],
  ] as const) {
    it(`refuses ${args[0]} ${JSON.stringify(path.basename(args[1]))} in one line`, () => {
      const { status, stdout, stderr } = start(...args);
      assert.deepEqual([status, stdout], [1, '']);
      assert.match(stderr, message);
      assert.equal(stderr.trim().split('\n').length, 1);
    });
  }

  it('takes each byte of the held-out text as a target once', () => {
    const bytes = Uint8Array.from({ length: 23 }, (_, i) => i);
    const starts = evaluationStarts(bytes, 5);
    const [inputs, targets] = windowsAt(bytes, starts, 5, 'cpu');
    assert.deepEqual(starts, [0, 5, 10, 15]);
    assert.deepEqual((inputs.tolist() as number[][]).flat().map(Number), [...bytes.subarray(0, 20)]);
    assert.deepEqual((targets.tolist() as number[][]).flat().map(Number), [...bytes.subarray(1, 21)]);
    // A text of two bytes in turn: a bigram model is nearly sure.
    const turns = Uint8Array.from({ length: 10_000 }, (_, i) => i % 2);
    assert.ok(bigramLoss({ train: turns, validation: turns.subarray(0, 100) }, 7) < 0.06);
    assert.ok(loadText().validation.length > 100_000);
  });
});
