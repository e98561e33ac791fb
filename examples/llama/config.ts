/** The `config.json` of a Hugging Face folder, as far as a Llama needs it. */
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { bfloat16, type DType, float16, float32 } from '../../lib/index.js';
import { UserError } from '../common/arguments.js';

/** How the frequencies of rotary embeddings are stretched for contexts beyond those of pretraining. */
export type RopeScaling =
  | { readonly type: 'default' }
  | { readonly type: 'linear'; readonly factor: number }
  | {
      readonly type: 'llama3';
      readonly factor: number;
      readonly lowFreqFactor: number;
      readonly highFreqFactor: number;
      readonly originalMaxPositions: number;
    };

/** The sizes of a Llama. */
export interface LlamaConfig {
  readonly vocabSize: number;
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly numLayers: number;
  readonly numHeads: number;
  /** Heads of keys and values; each serves `numHeads / numKeyValueHeads` heads of queries. */
  readonly numKeyValueHeads: number;
  readonly headDim: number;
  readonly maxPositions: number;
  readonly rmsNormEps: number;
  readonly ropeTheta: number;
  readonly ropeScaling: RopeScaling;
  readonly attentionBias: boolean;
  readonly mlpBias: boolean;
  /** The dtype of the files; null if it is not given. */
  readonly storedDtype: DType | null;
  /** Whether the head is the table of token embeddings. */
  readonly tiedEmbeddings: boolean;
}

const DTYPES: Readonly<Record<string, DType>> = { float32, float16, bfloat16 };

type Json = Readonly<Record<string, unknown>>;

/** Reads values of a JSON object; errors name the file and the value. */
class Fields {
  private readonly file: string;
  private readonly json: Json;

  constructor(file: string, json: Json) {
    this.file = file;
    this.json = json;
  }

  error(name: string, expected: string): UserError {
    const given = JSON.stringify(this.json[name]) ?? 'nothing';
    return new UserError(`${this.file}: expected ${name} to be ${expected}, got ${given}`);
  }

  private has(name: string): boolean {
    return this.json[name] !== undefined && this.json[name] !== null;
  }

  size(name: string, fallback?: number): number {
    if (!this.has(name) && fallback !== undefined) return fallback;
    const value = this.json[name];
    if (!Number.isSafeInteger(value) || (value as number) < 1)
      throw this.error(name, 'a whole number from 1');
    return value as number;
  }

  positive(name: string, fallback?: number): number {
    if (!this.has(name) && fallback !== undefined) return fallback;
    const value = this.json[name];
    if (typeof value !== 'number' || !Number.isFinite(value) || value <= 0)
      throw this.error(name, 'a number above 0');
    return value;
  }

  flag(name: string, fallback: boolean): boolean {
    if (!this.has(name)) return fallback;
    const value = this.json[name];
    if (typeof value !== 'boolean') throw this.error(name, 'true or false');
    return value;
  }

  /** A value that has to be one of a list, if it is there. */
  only(name: string, values: readonly unknown[]): void {
    if (!this.has(name) || values.includes(this.json[name])) return;
    throw this.error(name, values.map((value) => JSON.stringify(value)).join(' or ') || 'absent');
  }

  /** An object in this one; null if there is none. */
  inside(name: string): Fields | null {
    if (!this.has(name)) return null;
    const value = this.json[name];
    if (typeof value !== 'object' || Array.isArray(value)) throw this.error(name, 'an object');
    return new Fields(`${this.file}, ${name}`, value as Json);
  }

  text(name: string): string | null {
    const value = this.json[name];
    return typeof value === 'string' ? value : null;
  }
}

/**
 * Reads a configuration. @throws UserError unless it is one of a Llama whose parts are all known
 */
export async function readConfig(folder: string): Promise<LlamaConfig> {
  const file = path.join(folder, 'config.json');
  let json: unknown;
  try {
    json = JSON.parse(await readFile(file, 'utf8'));
  } catch (error) {
    throw new UserError(`${file} cannot be read: ${(error as Error).message}`);
  }
  if (typeof json !== 'object' || json === null || Array.isArray(json))
    throw new UserError(`${file}: expected a JSON object`);
  return configOf(new Fields(file, json as Json));
}

function configOf(fields: Fields): LlamaConfig {
  if (fields.text('model_type') !== 'llama') throw fields.error('model_type', '"llama"');
  fields.only('hidden_act', ['silu']);
  fields.only('quantization_config', []);
  const [hiddenSize, numHeads] = [
    fields.size('hidden_size'),
    fields.size('num_attention_heads'),
  ] as const;
  const numKeyValueHeads = fields.size('num_key_value_heads', numHeads);
  if (numHeads % numKeyValueHeads !== 0)
    throw fields.error('num_key_value_heads', `a divisor of num_attention_heads, ${numHeads}`);
  const evenShare = hiddenSize % numHeads === 0 ? hiddenSize / numHeads : undefined;
  const headDim = fields.size('head_dim', evenShare);
  if (headDim % 2 !== 0) throw fields.error('head_dim', 'even, because rotary pairs divide it');
  // Newer files have the rotary values in an object of their own.
  const rope = fields.inside('rope_parameters');
  return {
    vocabSize: fields.size('vocab_size'),
    hiddenSize,
    intermediateSize: fields.size('intermediate_size'),
    numLayers: fields.size('num_hidden_layers'),
    numHeads,
    numKeyValueHeads,
    headDim,
    maxPositions: fields.size('max_position_embeddings', 2048),
    rmsNormEps: fields.positive('rms_norm_eps', 1e-6),
    ropeTheta: (rope ?? fields).positive('rope_theta', 10_000),
    ropeScaling: scalingOf(rope ?? fields.inside('rope_scaling')),
    attentionBias: fields.flag('attention_bias', false),
    mlpBias: fields.flag('mlp_bias', false),
    storedDtype: DTYPES[fields.text('dtype') ?? fields.text('torch_dtype') ?? ''] ?? null,
    tiedEmbeddings: fields.flag('tie_word_embeddings', false),
  };
}

function scalingOf(fields: Fields | null): RopeScaling {
  if (fields === null) return { type: 'default' };
  const name = fields.text('rope_type') === null ? 'type' : 'rope_type';
  const type = fields.text(name) ?? 'default';
  if (type === 'default') return { type };
  if (type === 'linear') return { type, factor: fields.positive('factor') };
  if (type === 'llama3')
    return {
      type,
      factor: fields.positive('factor'),
      lowFreqFactor: fields.positive('low_freq_factor'),
      highFreqFactor: fields.positive('high_freq_factor'),
      originalMaxPositions: fields.size('original_max_position_embeddings'),
    };
  throw fields.error(name, '"default", "linear" or "llama3"');
}
