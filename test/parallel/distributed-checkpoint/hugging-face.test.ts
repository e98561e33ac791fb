/** Weights of Hugging Face go into sharded modules and out of them, each rank reading its rows. */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fullyShard, launch, loadHuggingFace, saveHuggingFace } from '../../../lib/distributed.js';
import {
  ArgumentError,
  bfloat16,
  CheckpointError,
  loadSafetensors,
  manualSeed,
  nn,
  saveSafetensors,
  type Tensor,
} from '../../../lib/index.js';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'shardwise-hf-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

class Model extends nn.Module {
  embed = new nn.Embedding(11, 6);
  block = new nn.Linear(6, 7);
  head = new nn.Linear(6, 11, { bias: false });
  constructor() {
    super();
    this.head.weight = this.embed.weight;
  }
  forward(x: Tensor): Tensor {
    return this.head(this.embed(x));
  }
}

const reference = (): Model => {
  manualSeed(3);
  return new Model();
};
const valuesOf = async (model: nn.AnyModule): Promise<number[][]> =>
  Promise.all(
    [...model.parameters()].map(async (p) => {
      const whole = p.sharding === null ? p : (p as Tensor & { fullTensor(): Tensor }).fullTensor();
      return [...((await whole.detach().read()) as Float32Array)];
    }),
  );
const plain = (name: string): string => name.replace(/^transformer\./, '');

/** Two files with an index, and without the shared weight, as Hugging Face writes them. */
async function writeTwoFiles(): Promise<void> {
  const { embed, block } = reference();
  const file = (i: number): string => `model-0000${i}-of-00002.safetensors`;
  await saveSafetensors(path.join(folder, file(1)), { 'transformer.embed.weight': embed.weight });
  await saveSafetensors(path.join(folder, file(2)), {
    'transformer.block.weight': block.weight,
    'transformer.block.bias': block.bias as Tensor,
  });
  const map = { embed: 1, block: 2 };
  writeFileSync(
    path.join(folder, 'model.safetensors.index.json'),
    JSON.stringify({
      weight_map: {
        'transformer.embed.weight': file(map.embed),
        'transformer.block.weight': file(map.block),
        'transformer.block.bias': file(map.block),
      },
    }),
  );
}

describe('weights of Hugging Face', () => {
  for (const ranks of [1, 3, 4])
    it(`load from several files onto ${ranks} sharded ranks, each reading its rows`, async () => {
      await writeTwoFiles();
      const expected = await valuesOf(reference());
      const read = await launch(ranks, async () => {
        const model = fullyShard(new Model());
        const { missing, unexpected, bytesRead } = await loadHuggingFace(folder, model, {
          rename: plain,
        });
        assert.deepEqual([missing, unexpected], [[], []]);
        assert.deepEqual(await valuesOf(model), expected);
        return bytesRead;
      });
      const all = 4 * (66 + 42 + 7);
      for (const bytes of read) assert.ok(ranks === 1 ? bytes === all : bytes < all, String(bytes));
    });

  it('convert to the dtype of the module', async () => {
    const model = reference().to(bfloat16);
    await saveHuggingFace(folder, model);
    const other = new Model();
    await loadHuggingFace(path.join(folder, 'model.safetensors'), other);
    assert.deepEqual(await valuesOf(other), await valuesOf(model));
  });

  for (const ranks of [1, 3])
    it(`are written whole by ${ranks} sharded ranks, in files of a limited size`, async () => {
      const expected = await valuesOf(reference());
      await launch(ranks, async () => {
        const model = fullyShard(reference());
        await saveHuggingFace(folder, model, {
          maxShardBytes: 270,
          rename: (name) => `transformer.${name}`,
        });
      });
      assert.deepEqual(readdirSync(folder).sort(), [
        'model-00001-of-00002.safetensors',
        'model-00002-of-00002.safetensors',
        'model.safetensors.index.json',
      ]);
      const index = JSON.parse(
        readFileSync(path.join(folder, 'model.safetensors.index.json'), 'utf8'),
      );
      assert.equal(index.metadata.total_size, 4 * (66 + 42 + 7));
      const model = new Model();
      await loadHuggingFace(folder, model, { rename: plain });
      assert.deepEqual(await valuesOf(model), expected);
    });

  it('are one file if they fit', async () => {
    await saveHuggingFace(folder, reference());
    assert.deepEqual(
      Object.keys(await loadSafetensors(path.join(folder, 'model.safetensors'))).sort(),
      ['block.bias', 'block.weight', 'embed.weight'],
    );
    assert.ok(!existsSync(path.join(folder, 'model.safetensors.index.json')));
  });

  it('are refused on all ranks if names, shapes or files do not fit', async () => {
    await writeTwoFiles();
    const refused = (make: () => nn.AnyModule, options = {}): Promise<string[]> =>
      launch(2, () =>
        loadHuggingFace(folder, make(), options).then(
          () => 'loaded',
          (error: Error) => (error instanceof CheckpointError ? error.message : String(error)),
        ),
      );
    const assertRefused = (messages: string[], pattern: RegExp): void => {
      assert.match(messages[0] as string, pattern);
      assert.equal(new Set(messages).size, 1);
    };
    assertRefused(await refused(reference), /it lacks \[embed.weight, .*lacks \[transformer.embed/);
    assertRefused(
      await refused(() => new nn.ModuleDict({ embed: new nn.Embedding(3, 6) }), {
        rename: plain,
        strict: false,
      }),
      /"transformer.embed.weight" has shape \[11, 6\], "embed.weight" of the module \[3, 6\]/,
    );
    rmSync(path.join(folder, 'model-00002-of-00002.safetensors'));
    assertRefused(await refused(reference, { rename: plain }), /model-00002.*cannot be opened/);
    const index = path.join(folder, 'model.safetensors.index.json');
    writeFileSync(index, '{"weight_map": {"a": "../x.safetensors"}}');
    assertRefused(await refused(reference), /is not a file of the folder/);
    await assert.rejects(loadHuggingFace(folder, 3 as never), ArgumentError);
    await assert.rejects(saveHuggingFace(folder, {} as never), ArgumentError);
  });

  it('may lack names if strict is false', async () => {
    await writeTwoFiles();
    const rename = (name: string): string | null => (name.includes('bias') ? null : plain(name));
    const { missing } = await loadHuggingFace(folder, reference(), { rename, strict: false });
    assert.deepEqual(missing, ['block.bias']);
  });
});
