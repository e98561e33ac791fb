/** The Llama of the example computes what Hugging Face's does, and reads its configurations. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { UserError } from '../../examples/common/arguments.js';
import { type LlamaConfig, readConfig } from '../../examples/llama/config.js';
import { addLora, loraLayers } from '../../examples/llama/lora.js';
import { fileName, Llama } from '../../examples/llama/model.js';
import { frequencies } from '../../examples/llama/rotary.js';
import { nn, noGrad, type Tensor, tensor } from '../../lib/index.js';
import { referenceLogits, type TinyConfig, tinyConfig, tinyWeights } from './tiny-llama.js';

const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-llama-config-'));
after(() => rmSync(folder, { recursive: true, force: true }));

function configOf(json: Record<string, unknown>): Promise<LlamaConfig> {
  writeFileSync(path.join(folder, 'config.json'), JSON.stringify(json));
  return readConfig(folder);
}

async function makeModel(json: TinyConfig, weights: Record<string, Tensor>): Promise<Llama> {
  const model = new Llama(await configOf(json));
  noGrad(() => {
    for (const [name, parameter] of model.namedParameters())
      parameter.copy_(weights[fileName(name)] as Tensor);
  });
  return model;
}

const ids = [3, 1, 39, 1, 5, 9, 2, 6, 5, 35, 0];
const logitsOf = (model: Llama): number[][] =>
  model(tensor(BigInt64Array.from(ids, BigInt)).unsqueeze(0))
    .select(0, 0)
    .tolist() as number[][];

function assertClose(actual: number[][], expected: number[][]): void {
  assert.ok(tensor(actual).allclose(tensor(expected), { rtol: 1e-4, atol: 1e-5 }));
}

describe('the Llama of the example', () => {
  for (const [title, changes] of [
    ['heads of queries that share heads of keys', {}],
    ['one head of keys', { num_key_value_heads: 1 }],
    ['a head of keys for each head of queries', { num_key_value_heads: 4 }],
    ['a tied head', { tie_word_embeddings: true }],
  ] as const) {
    it(`gives the logits of the formulae with ${title}`, async () => {
      const json = { ...tinyConfig, ...changes } as TinyConfig;
      const weights = tinyWeights(json);
      const model = await makeModel(json, weights);
      assert.deepEqual(
        [...model.namedParameters()].map(([name]) => fileName(name)).sort(),
        Object.keys(weights).sort(),
      );
      const expected = referenceLogits(json, weights, ids);
      assertClose(logitsOf(model), expected);
    });
  }

  it('is unchanged by LoRA at first, and merges what it has learned', async () => {
    const model = await makeModel(tinyConfig, tinyWeights(tinyConfig));
    const before = logitsOf(model);
    addLora(model, { rank: 3, alpha: 6, targets: ['v_proj', 'down_proj'] });
    assert.equal(loraLayers(model).length, 4);
    for (const layer of loraLayers(model)) layer.resetLora();
    assert.deepEqual(logitsOf(model), before);
    for (const { loraB } of loraLayers(model)) nn.init.normal_(loraB);
    const learned = logitsOf(model);
    assert.notDeepEqual(learned, before);
    const trained = [...model.namedParameters()].filter(([, { requiresGrad }]) => requiresGrad);
    assert.ok(trained.length === 8 && trained.every(([name]) => /lora[AB]$/.test(name)));
    for (const layer of loraLayers(model)) layer.merge();
    assertClose(logitsOf(model), learned);
  });

  it('stretches the frequencies of rotary embeddings as Llama 3.1 and linear scaling do', async () => {
    const sizes = { ...tinyConfig, hidden_size: 256, rope_theta: 500_000 };
    const plain = frequencies(await configOf(sizes));
    assert.equal(plain.length, 32);
    assert.ok(Math.abs((plain[1] as number) - 500_000 ** (-2 / 64)) < 1e-15);
    const linear = frequencies(
      await configOf({ ...sizes, rope_scaling: { type: 'linear', factor: 4 } }),
    );
    linear.forEach((f, i) => assert.ok(Math.abs(f - (plain[i] as number) / 4) < 1e-15));
    const rope = {
      rope_type: 'llama3',
      factor: 8,
      low_freq_factor: 1,
      high_freq_factor: 4,
      original_max_position_embeddings: 8192,
    };
    const llama3 = frequencies(await configOf({ ...sizes, rope_scaling: rope }));
    const newer = await configOf({
      ...sizes,
      rope_theta: 1,
      rope_parameters: { ...rope, rope_theta: 500_000 },
    });
    assert.deepEqual(frequencies(newer), llama3);
    llama3.forEach((f, i) => {
      // transformers, _compute_llama3_parameters
      const wavelength = (2 * Math.PI) / (plain[i] as number);
      const smooth = (8192 / wavelength - 1) / (4 - 1);
      const between = ((1 - smooth) * (plain[i] as number)) / 8 + smooth * (plain[i] as number);
      const expected =
        wavelength > 8192 ? (plain[i] as number) / 8 : wavelength < 2048 ? plain[i] : between;
      assert.ok(Math.abs(f - (expected as number)) < 1e-12);
    });
  });

  for (const [changes, message] of [
    [{ model_type: 'mistral' }, /expected model_type to be "llama", got "mistral"/],
    [{ hidden_act: 'gelu' }, /expected hidden_act to be "silu", got "gelu"/],
    [{ vocab_size: 'many' }, /expected vocab_size to be a whole number from 1, got "many"/],
    [{ intermediate_size: null }, /expected intermediate_size .* got null/],
    [{ num_key_value_heads: 3 }, /a divisor of num_attention_heads, 4, got 3/],
    [{ num_attention_heads: 5, num_key_value_heads: 5 }, /expected head_dim to be .* got nothing/],
    [{ head_dim: 3 }, /expected head_dim to be even.* got 3/],
    [{ rms_norm_eps: 0 }, /expected rms_norm_eps to be a number above 0, got 0/],
    [{ tie_word_embeddings: 1 }, /expected tie_word_embeddings to be true or false, got 1/],
    [{ quantization_config: {} }, /expected quantization_config to be absent/],
    [
      { rope_scaling: { rope_type: 'yarn' } },
      /rope_scaling: expected rope_type to be "default", "linear" or "llama3", got "yarn"/,
    ],
    [{ rope_scaling: 8 }, /expected rope_scaling to be an object, got 8/],
  ] as const) {
    it(`refuses a configuration with ${JSON.stringify(changes)}`, async () => {
      await assert.rejects(configOf({ ...tinyConfig, ...changes }), (error: Error) => {
        assert.ok(error instanceof UserError);
        assert.match(error.message, message);
        return true;
      });
    });
  }

  it('refuses a folder without configuration, and one that is no JSON', async () => {
    await assert.rejects(
      readConfig(path.join(folder, 'none')),
      /config\.json cannot be read: ENOENT/,
    );
    writeFileSync(path.join(folder, 'config.json'), '{');
    await assert.rejects(readConfig(folder), /config\.json cannot be read: .*JSON/);
    writeFileSync(path.join(folder, 'config.json'), '[]');
    await assert.rejects(readConfig(folder), /config\.json: expected a JSON object/);
  });
});
