/** A small Llama as Hugging Face stores it, with random weights, and its plain float64 forward. */
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { manualSeed, ones, randn, saveSafetensors, type Tensor } from '../../lib/index.js';

/** `config.json`. */
export const tinyConfig = {
  architectures: ['LlamaForCausalLM'],
  model_type: 'llama',
  hidden_act: 'silu',
  vocab_size: 40,
  hidden_size: 24,
  intermediate_size: 36,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 64,
  rms_norm_eps: 1e-5,
  rope_theta: 500,
  tie_word_embeddings: false,
};

export type TinyConfig = typeof tinyConfig;

/** Random weights by Hugging Face's names. */
export function tinyWeights(config: TinyConfig): Record<string, Tensor> {
  manualSeed(3);
  const { vocab_size, hidden_size, intermediate_size } = config;
  const wide = (hidden_size / config.num_attention_heads) * config.num_key_value_heads;
  const matrix = (rows: number, columns: number): Tensor => randn([rows, columns]).mul(0.3);
  const norm = (): Tensor => ones([hidden_size]).add(randn([hidden_size]).mul(0.1));
  const weights: Record<string, Tensor> = {
    'model.embed_tokens.weight': matrix(vocab_size, hidden_size),
    'model.norm.weight': norm(),
  };
  if (!config.tie_word_embeddings) weights['lm_head.weight'] = matrix(vocab_size, hidden_size);
  for (let i = 0; i < config.num_hidden_layers; i++) {
    const layer = {
      'input_layernorm.weight': norm(),
      'post_attention_layernorm.weight': norm(),
      'self_attn.q_proj.weight': matrix(hidden_size, hidden_size),
      'self_attn.k_proj.weight': matrix(wide, hidden_size),
      'self_attn.v_proj.weight': matrix(wide, hidden_size),
      'self_attn.o_proj.weight': matrix(hidden_size, hidden_size),
      'mlp.gate_proj.weight': matrix(intermediate_size, hidden_size),
      'mlp.up_proj.weight': matrix(intermediate_size, hidden_size),
      'mlp.down_proj.weight': matrix(hidden_size, intermediate_size),
    };
    for (const [name, t] of Object.entries(layer)) weights[`model.layers.${i}.${name}`] = t;
  }
  return weights;
}

/** Writes `config.json`, two files of weights and their index. */
export async function writeFolder(
  folder: string,
  config: Record<string, unknown>,
  weights: Record<string, Tensor>,
): Promise<void> {
  mkdirSync(folder, { recursive: true });
  writeFileSync(path.join(folder, 'config.json'), JSON.stringify(config));
  const entries = Object.entries(weights);
  const middle = Math.ceil(entries.length / 2);
  const weightMap: Record<string, string> = {};
  for (const [i, part] of [entries.slice(0, middle), entries.slice(middle)].entries()) {
    const file = `model-0000${i + 1}-of-00002.safetensors`;
    for (const [name] of part) weightMap[name] = file;
    const metadata = { format: 'pt' };
    await saveSafetensors(path.join(folder, file), Object.fromEntries(part), { metadata });
  }
  const index = JSON.stringify({ metadata: { total_size: 0 }, weight_map: weightMap });
  writeFileSync(path.join(folder, 'model.safetensors.index.json'), index);
}

type Rows = number[][];

const dot = (a: readonly number[], b: readonly number[]): number =>
  a.reduce((sum, x, i) => sum + x * (b[i] as number), 0);
const plus = (a: Rows, b: Rows): Rows =>
  a.map((row, t) => row.map((x, i) => x + (b[t]?.[i] as number)));

/**
 * Logits `[T][V]` of one sequence, by the formulae of `modeling_llama.py` of Hugging Face, one number
 * at a time.
 */
export function referenceLogits(
  config: TinyConfig,
  weights: Record<string, Tensor>,
  ids: readonly number[],
): Rows {
  const values = (name: string): Rows => weights[`${name}.weight`]?.tolist() as Rows;
  const linear = (x: Rows, name: string): Rows => {
    const w = values(name);
    return x.map((row) => w.map((column) => dot(row, column)));
  };
  const norm = (x: Rows, name: string): Rows => {
    const gain = weights[`${name}.weight`]?.tolist() as number[];
    return x.map((row) => {
      const rms = Math.sqrt(dot(row, row) / row.length + config.rms_norm_eps);
      return row.map((value, i) => (value / rms) * (gain[i] as number));
    });
  };
  const embedding = values('model.embed_tokens');
  let x = ids.map((id) => embedding[id] as number[]);
  for (let i = 0; i < config.num_hidden_layers; i++) {
    const layer = `model.layers.${i}`;
    x = plus(
      x,
      attention(config, norm(x, `${layer}.input_layernorm`), `${layer}.self_attn`, linear),
    );
    const y = norm(x, `${layer}.post_attention_layernorm`);
    const up = linear(y, `${layer}.mlp.up_proj`);
    const gated = linear(y, `${layer}.mlp.gate_proj`).map((row, t) =>
      row.map((g, j) => (g / (1 + Math.exp(-g))) * (up[t]?.[j] as number)),
    );
    x = plus(x, linear(gated, `${layer}.mlp.down_proj`));
  }
  const head = config.tie_word_embeddings ? 'model.embed_tokens' : 'lm_head';
  return linear(norm(x, 'model.norm'), head);
}

function attention(
  config: TinyConfig,
  x: Rows,
  path: string,
  linear: (x: Rows, name: string) => Rows,
): Rows {
  const { num_attention_heads: heads, num_key_value_heads: groups, rope_theta: theta } = config;
  const size = config.hidden_size / heads;
  const rotated = (head: number[], position: number): number[] => {
    const half = size / 2;
    const turned = [...head.slice(half).map((v) => -v), ...head.slice(0, half)]; // rotate_half
    return head.map((v, j) => {
      const angle = position / theta ** ((2 * (j % half)) / size);
      return v * Math.cos(angle) + (turned[j] as number) * Math.sin(angle);
    });
  };
  const headOf = (row: number[], head: number): number[] =>
    row.slice(head * size, (head + 1) * size);
  const [q, k, v] = ['q_proj', 'k_proj', 'v_proj'].map((name) => linear(x, `${path}.${name}`)) as [
    Rows,
    Rows,
    Rows,
  ];
  const mixed = q.map((row, t) =>
    Array.from({ length: heads }, (_, head) => {
      const group = Math.floor(head / (heads / groups)); // repeat_kv
      const query = rotated(headOf(row, head), t);
      const scores = k
        .slice(0, t + 1)
        .map((key, s) => dot(query, rotated(headOf(key, group), s)) / Math.sqrt(size));
      const exponentials = scores.map((score) => Math.exp(score - Math.max(...scores)));
      const total = exponentials.reduce((a, b) => a + b);
      return Array.from({ length: size }, (__, j) =>
        dot(
          exponentials.map((e) => e / total),
          v.slice(0, t + 1).map((value) => headOf(value, group)[j] as number),
        ),
      );
    }).flat(),
  );
  return linear(mixed, `${path}.o_proj`);
}
