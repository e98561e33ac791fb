/**
 * Saves a state from all ranks. Each writes its own shards under the name of a new generation; then
 * one rank writes the index, and the old generation goes.
 */
import { mkdir, readdir, rm } from 'node:fs/promises';
import path from 'node:path';
import { encodeValue, RANDOM } from '../../../checkpoint/state/json-values.js';
import { unexpected } from '../../../core/options.js';
import { DTensor } from '../../../dtensor/index.js';
import {
  ArgumentError,
  CheckpointError,
  type CheckpointState,
  type DTypeName,
  keep,
  noGrad,
  type SavedFile,
  saveSafetensors,
  saveText,
  type Tensor,
} from '../../../index.js';
import {
  type CheckpointIndex,
  type Chunk,
  formatIndex,
  INDEX_NAME,
  isOfGeneration,
  parseIndex,
  readIndex,
  type SavedTensor,
  type SavedValue,
  shardFileName,
} from '../checkpoint-index.js';
import type { Ranks } from '../ranks.js';
import { type HeldRegion, heldRegion, reduced } from '../state/shard-regions.js';
import { StateEntries } from '../state/state-entries.js';
import { sampleChecksum } from './replicas.js';
import { type HeldPart, type PlannedChunk, planChunks } from './save-plan.js';

const OP = 'distributedCheckpoint.save';

/** What a rank sends to the others before it writes. */
interface Contribution {
  readonly parts: readonly HeldPart[];
  readonly aliases: readonly (readonly [path: string, first: string])[];
  /** JSON of each value; those of random numbers are marked. */
  readonly values: readonly (readonly [path: string, json: string])[];
  /** The folder, from the root of the file system. */
  readonly folder: string;
  readonly generation: number;
}

/** A save that is decided: all that is left to do is to write. */
export interface PreparedSave {
  readonly folder: string;
  readonly generation: number;
  readonly contributions: readonly Contribution[];
  readonly chunks: readonly PlannedChunk[];
  /** What this rank writes, by name in its file. */
  readonly own: Record<string, Tensor>;
}

/** @throws ArgumentError unless it is the name of a folder */
export function checkFolder(op: string, folder: unknown): asserts folder is string {
  if (typeof folder !== 'string' || folder === '')
    throw unexpected(op, 'folder', 'the name of a folder', folder);
}

/**
 * Decides who writes what. With `copies`, the state may change while it is written. @throws
 * CheckpointError on all ranks, also if `earlier` is an error on one of them
 */
export async function prepareSave(
  ranks: Ranks,
  folder: string,
  state: CheckpointState,
  { copies, earlier }: { copies: boolean; earlier: Error | null },
): Promise<PreparedSave> {
  const regions = new Map<string, HeldRegion>();
  const contributions = await ranks.agree(OP, async () => {
    if (earlier !== null) throw earlier;
    return contribute(ranks, folder, state, regions);
  });
  const [{ generation, folder: common }] = contributions as [Contribution];
  const other = contributions.findIndex((each) => each.folder !== common);
  if (other > 0)
    throw new ArgumentError(
      `${OP}: expected one folder on all ranks, got ${common} on rank 0 and ` +
        `${contributions[other]?.folder} on rank ${other}`,
      { op: OP, argument: 'folder' },
    );
  const chunks = planChunks(
    OP,
    contributions.map(({ parts }) => parts),
  );
  const own = Object.fromEntries(
    chunks
      .filter(({ rank }) => rank === ranks.rank)
      .map((chunk) => [chunk.name, memoryOf(chunk, regions.get(chunk.path) as HeldRegion, copies)]),
  );
  return { folder, generation, contributions, chunks, own };
}

async function contribute(
  ranks: Ranks,
  folder: string,
  state: CheckpointState,
  regions: Map<string, HeldRegion>,
): Promise<Contribution> {
  const entries = new StateEntries(OP, state);
  const parts: HeldPart[] = [];
  for (const [name, tensor] of entries.tensors) {
    if (entries.aliases.has(name)) continue;
    const region = heldRegion(reduced(tensor));
    if (region === null) continue;
    regions.set(name, region);
    const { offsets, sizes } = region;
    const { shape, dtype } = tensor;
    const part = { path: name, dtype: dtype.name as DTypeName, shape: [...shape], offsets, sizes };
    if (ranks.size === 1 || tensor instanceof DTensor) parts.push(part);
    else if (entries.buffers.has(name)) parts.push({ ...part, mayDiffer: true });
    else parts.push({ ...part, checksum: await sampleChecksum(region.local) });
  }
  const values = [...entries.values].map(([name, { value, isRandom }]): [string, string] => {
    const json = encodeValue(OP, name, value);
    return [name, JSON.stringify(isRandom ? { [RANDOM]: json } : json)];
  });
  return {
    parts,
    aliases: [...entries.aliases],
    values,
    folder: path.resolve(folder),
    generation: await nextGeneration(ranks, folder),
  };
}

/** Makes the folder, and finds a number that no checkpoint of it has; only rank 0 does. */
async function nextGeneration(ranks: Ranks, folder: string): Promise<number> {
  if (ranks.rank !== 0) return 0;
  try {
    await mkdir(folder, { recursive: true });
  } catch (error) {
    throw new CheckpointError(
      `${folder}: the folder cannot be made: ${(error as Error).message}`,
      { folder },
      { cause: error },
    );
  }
  return ((await readIndex(folder))?.generation ?? 0) + 1;
}

/** The memory of a chunk, or a copy of it on the host. */
function memoryOf(chunk: PlannedChunk, region: HeldRegion, copies: boolean): Tensor {
  return noGrad(() => {
    const part = chunk.sizes.reduce(
      (t, size, dim) =>
        t.shape[dim] === size
          ? t
          : t.narrow(dim, (chunk.offsets[dim] as number) - (region.offsets[dim] as number), size),
      region.local,
    );
    if (!copies) return part;
    return keep(part.device.type === 'cpu' ? part.clone() : part.to('cpu'));
  });
}

/**
 * Writes what was prepared, also while the program goes on. @throws CheckpointError on all ranks if
 * one of them cannot; CollectiveError if one has died or does not come
 */
export async function writeSave(ranks: Ranks, prepared: PreparedSave): Promise<void> {
  const { folder, generation, own } = prepared;
  const file = path.join(folder, shardFileName(generation, ranks.rank));
  const isEmpty = Object.keys(own).length === 0;
  const write = async (): Promise<SavedFile['checksums']> =>
    isEmpty ? {} : (await saveSafetensors(file, own)).checksums;
  // All files are complete and on the disk: the index makes them the checkpoint.
  const finish = async (checksums: readonly SavedFile['checksums'][]): Promise<void> => {
    const text = formatIndex(indexOf(prepared, ranks.size, checksums));
    await parseIndex(`${folder}/${INDEX_NAME}`, text);
    await saveText(path.join(folder, INDEX_NAME), text);
  };
  try {
    await ranks.commit(OP, write, finish);
  } catch (error) {
    // After a failed collective, the rank that writes the index may have got all that it waited for.
    if (!isEmpty && error instanceof CheckpointError) await removeUnused(folder, file);
    throw error;
  }
  if (ranks.rank === 0) await removeOld(folder, generation);
}

/** Removes a file of a save that failed, unless the index has come to name it. */
async function removeUnused(folder: string, file: string): Promise<void> {
  const index = await readIndex(folder).catch(() => undefined);
  if (index === undefined) return;
  const used = Object.values(index?.tensors ?? {}).some(({ chunks }) =>
    chunks.some((chunk) => path.join(folder, chunk.file) === file),
  );
  if (!used) await rm(file, { force: true }).catch(() => {});
}

/** Removes the files of all generations but one. Those that cannot be removed stay. */
async function removeOld(folder: string, generation: number): Promise<void> {
  const current = `generation-${generation}-`;
  for (const name of await readdir(folder).catch(() => [] as string[]))
    if (isOfGeneration(name) && !name.startsWith(current))
      await rm(path.join(folder, name), { force: true }).catch(() => {});
}

function indexOf(
  { generation, chunks, contributions }: PreparedSave,
  worldSize: number,
  checksums: readonly Readonly<Record<string, number>>[],
): Pick<CheckpointIndex, 'generation' | 'worldSize' | 'tensors' | 'values'> {
  const tensors: Record<string, SavedTensor & { chunks: Chunk[] }> = {};
  for (const { parts } of contributions)
    for (const { path: name, dtype, shape } of parts)
      tensors[name] ??= { dtype, shape, chunks: [] };
  for (const { path: name, rank, name: inFile, offsets, sizes } of chunks)
    tensors[name]?.chunks.push({
      file: shardFileName(generation, rank),
      name: inFile,
      offsets,
      sizes,
      checksum: checksums[rank]?.[inFile] as number,
    });
  for (const { aliases } of contributions)
    for (const [name, first] of aliases) {
      const tensor = tensors[first];
      if (tensor !== undefined) tensors[name] ??= tensor;
    }
  return { generation, worldSize, tensors, values: valuesOf(contributions) };
}

/** Values that all ranks have alike are stored once. */
function valuesOf(contributions: readonly Contribution[]): Record<string, SavedValue> {
  const byPath = new Map<string, (string | null)[]>();
  contributions.forEach(({ values }, rank) => {
    for (const [name, json] of values) {
      const list = byPath.get(name) ?? contributions.map(() => null);
      list[rank] = json;
      byPath.set(name, list);
    }
  });
  return Object.fromEntries(
    [...byPath].map(([name, list]): [string, SavedValue] => {
      const given = list.filter((json) => json !== null);
      if (given.every((json) => json === given[0]))
        return [name, { value: JSON.parse(given[0] as string) as unknown }];
      return [name, { byRank: list.map((json) => JSON.parse(json ?? 'null') as unknown) }];
    }),
  );
}
