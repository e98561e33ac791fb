/**
 * The index of a checkpoint: which chunks of which files are a tensor. It is written last, so the
 * folder holds the last complete checkpoint at any time.
 */
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { isIntact, sealedJson } from '../../checkpoint/state/sealed-json.js';
import { inSlices } from '../../checkpoint/time-slices.js';
import { CheckpointError, type DTypeName, dtypeByName } from '../../index.js';
import { tilingProblem } from './regions.js';

export const INDEX_NAME = 'checkpoint.index.json';
const FORMAT = 'shardwise checkpoint';
const VERSION = 1;

/** A hyper-rectangle of a tensor in a file. */
export interface Chunk {
  /** A file of the folder. */
  readonly file: string;
  /** The name of the chunk in the file. */
  readonly name: string;
  /** Its first index in each dim of the whole tensor. */
  readonly offsets: readonly number[];
  readonly sizes: readonly number[];
  /** As `saveSafetensors` returns it. */
  readonly checksum: number;
}

/** A tensor of a checkpoint. */
export interface SavedTensor {
  readonly dtype: DTypeName;
  readonly shape: readonly number[];
  readonly chunks: readonly Chunk[];
}

/** A plain value: of all ranks, or one for each. */
export type SavedValue = { readonly value: unknown } | { readonly byRank: readonly unknown[] };

/** What a checkpoint holds. */
export interface CheckpointIndex {
  readonly format: typeof FORMAT;
  readonly version: number;
  readonly generation: number;
  /** The number of ranks that saved it. */
  readonly worldSize: number;
  readonly tensors: Readonly<Record<string, SavedTensor>>;
  readonly values: Readonly<Record<string, SavedValue>>;
}

/** The text of an index. */
export function formatIndex(
  content: Pick<CheckpointIndex, 'generation' | 'worldSize' | 'tensors' | 'values'>,
): string {
  const index: CheckpointIndex = { format: FORMAT, version: VERSION, ...content };
  return `${sealedJson(index)}\n`;
}

/** Reads the index of a folder; null if there is none. @throws CheckpointError */
export async function readIndex(folder: string): Promise<CheckpointIndex | null> {
  const file = path.join(folder, INDEX_NAME);
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw new CheckpointError(
      `${file}: cannot be read: ${(error as Error).message}`,
      { file },
      { cause: error },
    );
  }
  return parseIndex(file, text);
}

/** The file of a generation that a rank writes. */
export function shardFileName(generation: number, rank: number): string {
  return `generation-${generation}-rank-${rank}.safetensors`;
}

const shardFile = /^generation-\d+-rank-\d+\.safetensors$/;
// Earlier versions had reports of ranks, in JSON.
const anyFile =
  /^generation-\d+-(rank-\d+\.safetensors|(rank-\d+|done)\.[0-9a-f]+\.json)(\..*\.partial)?$/;
const indexFile = /^checkpoint\.index\.json(\..*\.partial)?$/;

/** Whether a file of a folder belongs to a generation, or is a temporary file of one that does. */
export function isOfGeneration(name: string): boolean {
  return anyFile.test(name);
}

/** Whether a file of a folder belongs to a checkpoint. */
export function isOfCheckpoint(name: string): boolean {
  return isOfGeneration(name) || indexFile.test(name);
}

/** @throws CheckpointError unless the text is an index whose chunks are whole tensors */
export async function parseIndex(file: string, text: string): Promise<CheckpointIndex> {
  const bad = (what: string): CheckpointError =>
    new CheckpointError(`${file}: not a valid index of a checkpoint: ${what}`, { file });
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (error) {
    throw bad((error as Error).message);
  }
  const index = parsed as CheckpointIndex;
  if (!isObject(parsed) || index.format !== FORMAT)
    throw bad(`expected "format" to be "${FORMAT}"`);
  if (index.version !== VERSION)
    throw bad(`its version is ${index.version}, this library reads version ${VERSION}`);
  for (const name of ['generation', 'worldSize'] as const)
    if (!isSize(index[name])) throw bad(`expected "${name}" to be a whole number`);
  if (!isObject(index.tensors) || !isObject(index.values))
    throw bad('expected "tensors" and "values" to be objects');
  const problem = await inSlices(tensorProblem(index.tensors));
  if (problem !== null) throw bad(problem);
  for (const [name, value] of Object.entries(index.values))
    if (!isObject(value) || !('value' in value || Array.isArray(value['byRank'])))
      throw bad(`value "${name}" is neither of all ranks nor one for each`);
  if (!isIntact(text)) throw bad('its text is not the one that was saved');
  return index;
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isSize = (value: unknown): value is number =>
  Number.isSafeInteger(value) && Number(value) >= 0;
const isSizes = (value: unknown): value is number[] => Array.isArray(value) && value.every(isSize);

/** What is wrong with the first tensor that is not right; yields after each small step. */
function* tensorProblem(
  tensors: Readonly<Record<string, SavedTensor>>,
): Generator<void, string | null> {
  for (const [name, tensor] of Object.entries(tensors)) {
    const problem = chunksProblem(tensor) ?? (yield* tilingProblem(tensor.shape, tensor.chunks));
    if (problem !== null) return `tensor "${name}": ${problem}`;
    yield;
  }
  return null;
}

/** What is wrong with a tensor or one of its chunks, each for itself. */
function chunksProblem(tensor: SavedTensor): string | null {
  if (!isObject(tensor) || !isSizes(tensor.shape) || !Array.isArray(tensor.chunks))
    return 'expected dtype, shape and chunks';
  if (typeof tensor.dtype !== 'string' || !isDtype(tensor.dtype))
    return `there is no dtype ${JSON.stringify(tensor.dtype)}`;
  const { shape, chunks } = tensor;
  for (const chunk of chunks) {
    if (!isObject(chunk) || !isSizes(chunk.offsets) || !isSizes(chunk.sizes))
      return 'expected the offsets and sizes of each chunk';
    if (typeof chunk.name !== 'string' || typeof chunk.file !== 'string')
      return 'expected the file and name of each chunk';
    if (!shardFile.test(chunk.file)) return `"${chunk.file}" is not the name of a shard file`;
    if (!isSize(chunk.checksum)) return 'expected the checksum of each chunk';
    const { offsets, sizes } = chunk;
    const fits =
      offsets.length === shape.length &&
      sizes.length === shape.length &&
      sizes.every((size, dim) => (offsets[dim] as number) + size <= (shape[dim] as number));
    if (!fits) return 'a chunk is not within the tensor';
  }
  return null;
}

const isDtype = (name: string): boolean => dtypeByName(name as DTypeName) !== undefined;
