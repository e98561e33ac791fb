/**
 * The Llama example on a small folder: ranks and resumed runs give the same losses, in full and with
 * LoRA, and what it exports loads again.
 */
import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { UserError } from '../../examples/common/arguments.js';
import { parseOptions } from '../../examples/llama/options.js';
import { finetune } from '../../examples/llama/training.js';
import { bfloat16, loadSafetensors, type Tensor } from '../../lib/index.js';
import { runExample } from './run-example.js';
import { tinyConfig, tinyWeights, writeFolder } from './tiny-llama.js';

const top = mkdtempSync(path.join(tmpdir(), 'shardwise-llama-'));
const folder = path.join(top, 'tiny');
const tokens = path.join(top, 'ids.json');
const weights = tinyWeights(tinyConfig);
before(async () => {
  await writeFolder(folder, tinyConfig, weights);
  const ids = Array.from({ length: 2000 }, (_, i) => ((i * i) % 7) + (i % 3) * 7);
  writeFileSync(tokens, JSON.stringify(ids));
});
after(() => rmSync(top, { recursive: true, force: true }));

let runs = 0;
const newFolder = (): string => path.join(top, `run-${runs++}`);
const common = '--device cpu --batch 4 --context 16 --lr 0.02'.split(' ');

/** Runs the program in this process. */
const run = (source: string, out: string, ...args: string[]) =>
  finetune(
    parseOptions(['node', 'program', source, '--tokens', tokens, ...common, '--out', out, ...args]),
  );
/** Runs it as a user starts it. */
const start = (source: string, ...args: string[]) =>
  runExample('finetune-llama', source, '--out', newFolder(), ...common, ...args);

function assertNear(actual: number, expected: number, rtol = 1e-4): void {
  assert.ok(Math.abs(actual - expected) <= rtol * Math.abs(expected), `${actual}, ${expected}`);
}

/** All tensors of a folder, by name. */
async function tensorsOf(of: string): Promise<Record<string, Tensor>> {
  const files = readdirSync(of).filter((file) => file.endsWith('.safetensors'));
  return Object.assign(
    {},
    ...(await Promise.all(files.map((f) => loadSafetensors(path.join(of, f))))),
  );
}

describe('examples/finetune-llama', function () {
  this.timeout(60_000);

  for (const [title, args, learns] of [
    ['in full', ['--steps', '6'], 1],
    ['with LoRA', ['--steps', '6', '--lora', '3', '--lora-targets', 'q_proj,down_proj'], 0.05],
  ] as const) {
    it(`trains ${title}, with the same losses on two ranks and after a stop, and exports a folder that loads`, async () => {
      const [alone, two, stopped, three] = [newFolder(), newFolder(), newFolder(), newFolder()];
      const expected = await run(folder, alone, ...args);
      assert.equal(expected.losses.length, 6);
      assert.ok(expected.lossAfter < expected.lossBefore - learns, JSON.stringify(expected));
      const shared = await run(folder, two, ...args, '--ranks', '2', '--recompute');
      shared.losses.forEach((loss, i) => assertNear(loss, expected.losses[i] as number));
      assertNear(shared.lossAfter, expected.lossAfter);

      await run(folder, stopped, ...args, '--ranks', '2', '--steps', '3', '--save-every', '3');
      const again = [...args, '--resume', '--save-every', '2'];
      const resumed = await run(folder, stopped, ...again, '--ranks', '2');
      assert.deepEqual(resumed.losses, shared.losses);
      const fewer = await run(folder, stopped, ...args, '--steps', '7', '--resume');
      assert.deepEqual(fewer.losses.slice(0, 6), shared.losses);

      const exported = await run(shared.exported, three, '--steps', '1', '--ranks', '2');
      assertNear(exported.lossBefore, shared.lossAfter);
      assert.deepEqual(
        JSON.parse(readFileSync(path.join(shared.exported, 'config.json'), 'utf8')),
        tinyConfig,
      );
      const tensors = await tensorsOf(shared.exported);
      assert.deepEqual(Object.keys(tensors).sort(), Object.keys(weights).sort());
      for (const [name, t] of Object.entries(weights)) {
        const same = tensors[name]?.equal(t);
        const isTrained = learns === 1 || /q_proj|down_proj/.test(name);
        assert.equal(same, !isTrained, name);
      }
    });
  }

  it('trains a tied model of bfloat16 files in bfloat16, and exports files of that dtype', async () => {
    const config = { ...tinyConfig, tie_word_embeddings: true, torch_dtype: 'bfloat16' };
    const half = Object.entries(tinyWeights(config)).map(([name, t]) => [name, t.to(bfloat16)]);
    const source = path.join(top, 'half');
    await writeFolder(source, config, Object.fromEntries(half));
    const args = ['--dtype', 'bfloat16', '--ranks', '2'];
    const trained = await run(source, newFolder(), ...args, '--steps', '4');
    assert.ok(trained.lossAfter < trained.lossBefore - 0.5, JSON.stringify(trained));
    const tensors = await tensorsOf(trained.exported);
    assert.deepEqual(Object.keys(tensors).sort(), half.map(([name]) => name).sort());
    assert.ok(Object.values(tensors).every(({ dtype }) => dtype === bfloat16));
    const again = await run(trained.exported, newFolder(), ...args, '--steps', '1');
    assertNear(again.lossBefore, trained.lossAfter, 0.02);
  });

  it('learns the bytes of a text, in a process of its own', async () => {
    const [source, text] = [path.join(top, 'bytes'), path.join(top, 'text')];
    const config = { ...tinyConfig, vocab_size: 256 };
    await writeFolder(source, config, tinyWeights(config));
    writeFileSync(text, 'Call me Ishmael. '.repeat(40));
    const args = ['--text', text, '--steps', '2', '--ranks', '2', '--json'];
    const { status, stdout, stderr } = start(source, ...args);
    assert.equal(status, 0, stderr);
    const lines = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    const ends = lines.map(({ step, done }) => step ?? done);
    assert.deepEqual(ends, [1, 2, true]);
    assert.ok(lines[0].loss > 0 && lines[0].tokensPerSecond > 0);
  });

  /** A copy of the folder with one change. */
  const changed = (change: (copy: string) => void): string => {
    const copy = newFolder();
    cpSync(folder, copy, { recursive: true });
    change(copy);
    return copy;
  };

  it('says in one line what is wrong with a folder', () => {
    const source = changed((copy) => rmSync(path.join(copy, 'model-00002-of-00002.safetensors')));
    const { status, stdout, stderr } = start(source, '--tokens', tokens, '--ranks', '2', '--json');
    assert.deepEqual([status, stdout], [1, '']);
    assert.match(stderr, /^finetune-llama: .*model-00002-of-00002\.safetensors.*\n$/);
  });

  /** A run of one step is refused. */
  const fails = (source: string, message: RegExp, ...args: string[]): Promise<void> =>
    assert.rejects(run(source, newFolder(), '--steps', '1', ...args), (error: Error) => {
      assert.ok(error instanceof UserError, error.stack);
      assert.match(error.message, message);
      return true;
    });

  it('names the tensor that is missing or has another shape, and the file that is missing', async () => {
    const edited = (name: string, edit: (json: Record<string, object>) => unknown): string =>
      changed((copy) => {
        const file = path.join(copy, name);
        const json = JSON.parse(readFileSync(file, 'utf8'));
        writeFileSync(file, JSON.stringify(edit(json)));
      });
    const config = (changes: Partial<typeof tinyConfig>): string =>
      edited('config.json', (json) => ({ ...json, ...changes }));
    await fails(config({ num_hidden_layers: 3 }), /model\.layers\.2\./);
    await fails(config({ intermediate_size: 40 }), /mlp\.\w+_proj\.weight/, '--ranks', '2');
    await fails(config({ hidden_size: 0 }), /expected hidden_size to be a whole number from 1/);
    const missing = edited('model.safetensors.index.json', ({ weight_map, ...json }) => {
      const { 'model.norm.weight': _, ...others } = weight_map as Record<string, string>;
      return { ...json, weight_map: others };
    });
    await fails(missing, /model\.norm\.weight/, '--ranks', '2');
    await fails(path.join(top, 'nothing'), /config\.json cannot be read: ENOENT/);
  });

  it('refuses a folder of another run, and stops when the loss is no number', async () => {
    await fails(folder, /there is no run in /, '--resume');
    await fails(folder, /--context 65 is more than the 64 positions/, '--context', '65');
    await fails(folder, /--out .* cannot be used: ENOTDIR/, '--out', path.join(tokens, 'x'));
    await fails(
      folder,
      /the loss of step 3 is NaN; give a lower --lr/,
      '--lr',
      '1e30',
      '--steps',
      '4',
    );
    const out = newFolder();
    const again = ['--lora', '2', '--save-every', '1', '--out', out];
    await run(folder, out, '--steps', '2', ...again);
    await fails(folder, /has checkpoints of a run; go on with it by --resume/, ...again);
    await fails(folder, /the checkpoint is at step 2 already/, ...again, '--resume');
    await fails(folder, /"rank":2,.* this one .*"rank":3/, ...again, '--resume', '--lora', '3');
    rmSync(path.join(out, 'checkpoints'), { recursive: true });
    await fails(folder, /there is no checkpoint in .*: the run ended/, ...again, '--resume');
  });

  for (const [args, message] of [
    [['--ranks', '3'], /--batch 4 does not divide into 3 shares/],
    [['--lora-targets', 'head'], /--lora-targets.*expected some of q_proj/],
    [['--dtype', 'float16'], /--dtype.*expected float32 or bfloat16/],
    [['--text', 'a', '--tokens', 'b'], /--text and --tokens exclude each other/],
    [['--tokens', 'nothing'], /--tokens nothing cannot be read: ENOENT/],
  ] as const) {
    it(`refuses ${args.join(' ')} in one line`, () => {
      const { status, stdout, stderr } = start(folder, ...args);
      assert.deepEqual([status, stdout], [1, '']);
      assert.match(stderr, message);
      assert.equal(stderr.trim().split('\n').length, 1);
    });
  }
});
