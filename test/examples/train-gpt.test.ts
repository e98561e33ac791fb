/**
 * The GPT example runs as a user starts it: it resumes from its checkpoint and refuses wrong
 * arguments in one line.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { windowsAt } from '../../examples/common/text.js';
import { bigramLoss, evaluationStarts, loadText } from '../../examples/gpt/text.js';
import { loader } from '../run-program.js';
import { exampleFile, runExample } from './run-example.js';

const program = exampleFile('train-gpt');
const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-gpt-'));
after(() => rmSync(folder, { recursive: true, force: true }));

/**
 * A short text, because each run evaluates the model on a tenth of it; one run uses the whole book.
 */
const text = path.join(folder, 'text');
const short = path.join(folder, 'short');
writeFileSync(short, 'Call me');
writeFileSync(text, loadText().train.subarray(0, 30_000));

const start = (...args: string[]): ReturnType<typeof runExample> =>
  runExample('train-gpt', '--device', 'cpu', ...args);
const json = (...args: string[]): Record<string, number>[] => {
  const { status, stdout, stderr } = start('--json', '--batch', '2', '--text', text, ...args);
  assert.equal(status, 0, stderr);
  return stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
};

describe('examples/train-gpt', () => {
  it('resumes from its checkpoint with the same evaluation for any seed and batch', async function () {
    this.timeout(120_000);
    const out = path.join(folder, 'run');
    const first = json('--out', out, '--steps', '2', '--seed', '5', '--tensorboard');
    assert.deepEqual(
      first.map((line) => line['step']),
      [1, 2, undefined],
    );
    assert.deepEqual(readdirSync(out).sort(), ['checkpoints', 'loss.svg', 'tensorboard']);
    const [events = ''] = readdirSync(path.join(out, 'tensorboard'));
    assert.match(events, /^events\.out\.tfevents\./);
    const tags = readFileSync(path.join(out, 'tensorboard', events), 'latin1').match(
      /train\/loss/g,
    );
    assert.equal(tags?.length, 2);
    const second = json('--out', out, '--steps', '3', '--resume', '--seed', '6');
    assert.deepEqual(
      second.map((line) => line['step']),
      [3, undefined],
    );
    const [before, after] = [first.at(-1), second.at(-1)];
    assert.ok((second[0]?.['loss'] as number) < (first[0]?.['loss'] as number));
    assert.equal(after?.['firstLoss'], first[0]?.['loss']);
    assert.equal(after?.['bigramLoss'], before?.['bigramLoss']);
    assert.deepEqual(readdirSync(path.join(out, 'checkpoints')), ['step-3']);
    const { status, stderr } = start('--out', out, '--steps', '3', '--resume', '--text', text);
    assert.deepEqual(
      [status, stderr],
      [1, 'train-gpt: the checkpoint is at step 3 already; give --steps more than that\n'],
    );
  });

  it('gives the same losses on ranks that share batch and model, and resumes on another mesh', function () {
    this.timeout(120_000);
    const [alone, together] = ['alone', 'together'].map((name) => path.join(folder, name)) as [
      string,
      string,
    ];
    const expected = json('--out', alone, '--batch', '4', '--steps', '2');
    const actual = json(
      '--out',
      together,
      '--batch',
      '4',
      '--steps',
      '2',
      '--ranks',
      '4',
      '--mesh',
      'dp=2,tp=2',
    );
    const close = (
      a: Record<string, number>[],
      b: Record<string, number>[],
      names: readonly string[],
    ): void => {
      assert.equal(a.length, b.length);
      a.forEach((line, i) => {
        for (const name of names)
          if (name in line)
            assert.ok(
              Math.abs((line[name] as number) - (b[i]?.[name] as number)) < 1e-4,
              `${name} of line ${i}: ${line[name]}, ${b[i]?.[name]}`,
            );
      });
    };
    close(actual, expected, [
      'step',
      'loss',
      'lr',
      'firstLoss',
      'lastLoss',
      'validationLoss',
      'bigramLoss',
    ]);
    close(
      json(
        '--out',
        together,
        '--batch',
        '4',
        '--steps',
        '3',
        '--resume',
        '--ranks',
        '2',
        '--mesh',
        'tp=2',
      ),
      json('--out', alone, '--batch', '4', '--steps', '3', '--resume'),
      ['step', 'loss', 'validationLoss'],
    );
  });

  it('gives the losses of one rank on ranks that hold shards of the model, and resumes on others', function () {
    this.timeout(120_000);
    const options = ['--batch', '4', '--steps'] as const;
    const losses = (lines: Record<string, number>[]): number[] =>
      lines.map((line) => line['loss'] ?? (line['validationLoss'] as number));
    const alone = path.join(folder, 'one');
    const first = losses(json('--out', alone, ...options, '2'));
    const second = losses(json('--out', alone, ...options, '3', '--resume'));
    const closeTo = (actual: number[], expected: number[]): void => {
      assert.equal(actual.length, expected.length);
      actual.forEach((loss, i) => assert.ok(Math.abs(loss - (expected[i] as number)) < 1e-4));
    };
    const kinds = [
      ['ddp', '2'],
      ['fsdp', '2'],
      ['fsdp+tp', '4'],
    ] as const;
    for (const [parallel, ranks] of kinds) {
      const out = path.join(folder, parallel);
      const sharded = ['--out', out, '--parallel', parallel, '--ranks', ranks] as const;
      closeTo(losses(json(...sharded, ...options, '2')), first);
      closeTo(losses(json('--out', out, ...options, '3', '--resume')), second);
    }
  });

  it('prints text that a sharded model generates', function () {
    this.timeout(120_000);
    const { status, stdout, stderr } = start(
      '--out',
      path.join(folder, 'sample'),
      '--batch',
      '2',
      '--steps',
      '1',
      '--ranks',
      '2',
      '--mesh',
      'tp=2',
    );
    assert.equal(status, 0, stderr);
    assert.match(stdout, /Call me /);
    assert.match(stdout, /validation loss \d\.\d+ nats a byte/);
    const [header, step] = stdout.split('\n');
    assert.match(header as string, /^GPT of 0\.88M parameters \| cpu \| 2 ranks, ddp.*held out$/);
    assert.match(step as string, /^step 1\/1: loss \d\.\d+, \d+ tokens\/s$/);
    assert.match(stdout, /^go on with: .*--mesh tp=2.*--resume --steps 2$/m);
  });

  it('has saved all steps when Ctrl-C ends its validation, and says where they are', async function () {
    this.timeout(60_000);
    const out = path.join(folder, 'interrupted');
    const args = ['--device', 'cpu', '--batch', '2', '--steps', '2', '--out', out];
    const run = spawn(process.execPath, [...loader, program, ...args]); // the whole book
    const printed = { stdout: '', stderr: '' };
    for (const stream of ['stdout', 'stderr'] as const)
      run[stream].on('data', (data: Buffer) => {
        printed[stream] += data;
      });
    const saved = path.join(out, 'checkpoints', 'step-2');
    while (!existsSync(path.join(saved, 'checkpoint.index.json'))) await sleep(20);
    await sleep(200); // until the save is over
    run.kill('SIGINT');
    const [code, signal] = await once(run, 'close');
    assert.doesNotMatch(printed.stdout, /validation loss/);
    assert.ok(code === 130 || signal === 'SIGINT', printed.stderr);
    assert.match(
      printed.stderr,
      /^SIGINT: (step 2 is )?saved (in )?\S*step-2\. To go on: .*--resume/m,
    );
    assert.doesNotMatch(printed.stderr, /at the end of the next step/);
  });

  it('says in one line that the checkpoint is missing or is not its own', () => {
    const none = path.join(folder, 'none');
    const missing = start('--resume', '--out', none);
    assert.equal(missing.status, 1);
    assert.match(
      missing.stderr,
      /^train-gpt: there is no checkpoint at .*none.checkpoints; run once without --resume.*\n$/,
    );
    const broken = path.join(none, 'checkpoints', 'step-1');
    mkdirSync(broken, { recursive: true });
    writeFileSync(path.join(broken, 'checkpoint.index.json'), 'junk');
    const damaged = start('--resume', '--out', none);
    assert.equal(damaged.status, 1);
    assert.match(damaged.stderr, /^train-gpt: .*not a valid index of a checkpoint.*\n$/m);
  });

  for (const [args, message] of [
    [['--lr', 'x'], /--lr.*expected a number above 0/],
    [['--mesh', 'x=2'], /--mesh.*expected such as 'dp=2,tp=2'/],
    [['--mesh', 'dp=2'], /--mesh dp=2,tp=1 needs --ranks 2, got 1/],
    [['--ranks', '3'], /--batch 16 does not divide into 3 shares/],
    [['--batch', '1.5'], /--batch.*expected a whole number from 1/],
    [['--seed', ''], /--seed.*expected a whole number from 0/],
    [['--device', 'gpu'], /--device.*expected 'cpu', 'cuda'/],
    [['--out', path.join(program, 'x')], /--out .* cannot be used/],
    [
      ['--text', short, '--out', folder],
      /--text .* has \d+ bytes, of which a tenth is held out; expected at least 1290/,
    ],
    [['--text', path.join(folder, 'nothing'), '--out', folder], /--text .* cannot be read: ENOENT/],
  ] as const) {
    it(`refuses ${args[0]} ${JSON.stringify(path.basename(args[1]))} in one line`, () => {
      const { status, stdout, stderr } = start(...args);
      assert.deepEqual([status, stdout], [1, '']);
      assert.match(stderr, message);
      assert.equal(stderr.trim().split('\n').length, 1);
    });
  }

  it('uses each byte of the held-out text as a target once', () => {
    const bytes = Uint8Array.from({ length: 23 }, (_, i) => i);
    const starts = evaluationStarts(bytes, 5);
    const [inputs, targets] = windowsAt(bytes, starts, 5, 'cpu');
    assert.deepEqual(starts, [0, 5, 10, 15]);
    assert.deepEqual((inputs.tolist() as number[][]).flat().map(Number), [
      ...bytes.subarray(0, 20),
    ]);
    assert.deepEqual((targets.tolist() as number[][]).flat().map(Number), [
      ...bytes.subarray(1, 21),
    ]);
    // A text of two alternating bytes, which a bigram model predicts.
    const turns = Uint8Array.from({ length: 10_000 }, (_, i) => i % 2);
    assert.ok(bigramLoss({ train: turns, validation: turns.subarray(0, 100) }, 7) < 0.06);
    assert.ok(loadText().validation.length > 100_000);
  });
});
