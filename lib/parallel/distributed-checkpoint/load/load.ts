/**
 * Loads a checkpoint into a state. Each rank reads what it holds, wherever it lies in the files,
 * and the ranks check the checksums together.
 */
import path from 'node:path';
import {
  CheckpointError,
  type CheckpointState,
  dtypeByName,
  type IndexRange,
  noGrad,
  type ReadIntoRequest,
  SafetensorsFile,
  type Tensor,
} from '../../../index.js';
import {
  type CheckpointIndex,
  type Chunk,
  INDEX_NAME,
  readIndex,
  type SavedTensor,
} from '../checkpoint-index.js';
import type { Ranks } from '../ranks.js';
import { intersect, type Region } from '../regions.js';
import { valueFor } from '../state/rank-values.js';
import { contributes, heldRegion } from '../state/shard-regions.js';
import { StateEntries } from '../state/state-entries.js';
import { type ReadPart, verifyChecksums } from './checksums.js';

const OP = 'distributedCheckpoint.load';

/** The result of `distributedCheckpoint.load`. */
export interface LoadedCheckpoint {
  /** Paths of the state that the checkpoint does not have; empty unless `strict` is false. */
  readonly missing: string[];
  /** Paths of the checkpoint that the state does not have; empty unless `strict` is false. */
  readonly unexpected: string[];
  /** Bytes of tensors that this rank holds of the state. */
  readonly bytes: number;
  /** Bytes of tensors that this rank has read. */
  readonly bytesRead: number;
}

/** Options of a load, complete. */
export interface LoadSettings {
  readonly strict: boolean;
  readonly verify: boolean;
}

export async function loadAll(
  ranks: Ranks,
  folder: string,
  state: CheckpointState,
  { strict, verify }: LoadSettings,
): Promise<LoadedCheckpoint> {
  const index = await ranks.fromFirst(OP, async () => {
    const found = await readIndex(folder);
    if (found !== null) return found;
    throw new CheckpointError(
      `${folder}: there is no checkpoint in this folder: it has no ${INDEX_NAME}`,
      { folder },
    );
  });
  let entries: StateEntries | null = null;
  const compared = await ranks.agree(OP, () => {
    entries = new StateEntries(OP, state, index);
    return compare(entries, index, ranks.size);
  });
  const { missing, unexpected } = differences(folder, compared, strict);
  const parts: ReadPart[] = [];
  const counts = { bytes: 0, bytesRead: 0 };
  const found = entries as unknown as StateEntries;
  const read = await ranks.agree(OP, async () => {
    await readTensors(folder, found, index, parts, counts);
    return verify ? parts : [];
  });
  await ranks.agree(OP, () => {
    if (verify) verifyChecksums(folder, index, read);
    for (const [name, { set }] of found.values) {
      const value = index.values[name];
      if (value !== undefined) set(valueFor(value, ranks));
    }
    noGrad(() => {
      for (const finish of found.finish) finish();
    });
  });
  return { missing, unexpected, ...counts };
}

/** What one rank finds different. */
interface Comparison {
  readonly missing: readonly string[];
  readonly unexpected: readonly string[];
  readonly wrong: readonly string[];
}

function compare(entries: StateEntries, index: CheckpointIndex, worldSize: number): Comparison {
  const missing: string[] = [];
  const wrong: string[] = [];
  for (const [name, tensor] of entries.tensors) {
    const saved = index.tensors[name];
    if (saved === undefined) missing.push(name);
    else if (describe(saved.dtype, saved.shape) !== describe(tensor.dtype.name, tensor.shape))
      wrong.push(
        `"${name}" is ${describe(saved.dtype, saved.shape)} in the checkpoint and ` +
          `${describe(tensor.dtype.name, tensor.shape)} in the state`,
      );
  }
  for (const [name, { isRandom }] of entries.values) {
    const saved = index.values[name];
    if (saved === undefined) missing.push(name);
    else if ('byRank' in saved && !isRandom && worldSize !== saved.byRank.length)
      wrong.push(
        `"${name}" differs between the ${saved.byRank.length} ranks that saved it, and ` +
          `${worldSize} load it; save a value that all ranks have alike`,
      );
  }
  const has = (name: string): boolean => entries.tensors.has(name) || entries.values.has(name);
  const all = [...Object.keys(index.tensors), ...Object.keys(index.values)];
  return { missing, unexpected: all.filter((name) => !has(name)), wrong };
}

const describe = (dtype: string, shape: readonly number[]): string =>
  `${dtype}[${shape.join(', ')}]`;

/**
 * What is unexpected on all ranks, or missing on one. @throws CheckpointError unless that is
 * allowed
 */
function differences(
  folder: string,
  compared: readonly Comparison[],
  strict: boolean,
): Pick<LoadedCheckpoint, 'missing' | 'unexpected'> {
  const missing = [...new Set(compared.flatMap((each) => each.missing))];
  const wrong = [...new Set(compared.flatMap((each) => each.wrong))];
  const [first, ...others] = compared.map((each) => new Set(each.unexpected));
  const unexpected = [...(first as Set<string>)].filter((name) =>
    others.every((set) => set.has(name)),
  );
  const rankOf = (name: string): string => {
    const without = compared.flatMap((each, rank) => (each.missing.includes(name) ? [rank] : []));
    return without.length === compared.length ? '' : ` (rank ${without.join(', ')})`;
  };
  const problems = [
    ...wrong,
    ...(strict && missing.length > 0
      ? [`the checkpoint lacks ${listed(missing.map((name) => `"${name}"${rankOf(name)}`))}`]
      : []),
    ...(strict && unexpected.length > 0
      ? [`the state lacks ${listed(unexpected.map((name) => `"${name}"`))}`]
      : []),
  ];
  if (problems.length > 0)
    throw new CheckpointError(
      `${OP}: ${path.join(folder, INDEX_NAME)} does not fit the state:\n  ${problems.join('\n  ')}`,
      { op: OP, folder, missing, unexpected },
    );
  return { missing, unexpected };
}

const MOST_LISTED = 10;

function listed(names: readonly string[]): string {
  const more = names.length - MOST_LISTED;
  return more <= 0
    ? names.join(', ')
    : `${names.slice(0, MOST_LISTED).join(', ')} and ${more} more`;
}

/** Reads this rank's parts of all tensors, file by file. */
async function readTensors(
  folder: string,
  entries: StateEntries,
  index: CheckpointIndex,
  parts: ReadPart[],
  counts: { bytes: number; bytesRead: number },
): Promise<void> {
  const byFile = new Map<string, { request: ReadIntoRequest; chunk: Chunk; part: ReadPart }[]>();
  for (const [name, tensor] of entries.tensors) {
    const saved = index.tensors[name];
    if (saved === undefined || entries.aliases.has(name)) continue;
    for (const { chunk, ...read } of partsOf(name, tensor, saved)) {
      const list = byFile.get(chunk.file) ?? [];
      byFile.set(chunk.file, list);
      list.push({ chunk, ...read });
      counts.bytes += read.request.into.numel() * tensor.dtype.itemsize;
    }
  }
  const slackBytes = Math.floor(SLACK_BYTES / Math.max(1, byFile.size));
  for (const [file, list] of byFile) {
    try {
      const opened = await SafetensorsFile.open(path.join(folder, file));
      try {
        for (const { chunk, part } of list)
          checkChunk(opened, chunk, index.tensors[part.path] as SavedTensor);
        const requests = list.map(({ request }) => request);
        const checksums = await opened.readInto(requests, { slackBytes });
        list.forEach(({ part }, i) => parts.push({ ...part, checksum: checksums[i] as number }));
        counts.bytesRead += opened.bytesRead;
      } finally {
        await opened.close();
      }
    } catch (error) {
      throw naming(error, [...new Set(list.map(({ part }) => part.path))]);
    }
  }
}

/** An error of a file, with the tensors that are in it. */
function naming(error: unknown, paths: readonly string[]): unknown {
  if (!(error instanceof CheckpointError)) return error;
  return new CheckpointError(
    `${error.message}. It has values of ${listed(paths.map((name) => `"${name}"`))}.`,
    { ...error.details, paths },
    { cause: error },
  );
}

/** Bytes between wanted ones that a load may read as well. */
export const SLACK_BYTES = 512 * 2 ** 10;

/** The parts of the chunks of a tensor that this rank holds. */
function* partsOf(
  name: string,
  tensor: Tensor,
  saved: SavedTensor,
): Generator<{ request: ReadIntoRequest; chunk: Chunk; part: ReadPart }> {
  const held = heldRegion(tensor);
  if (held === null) return;
  if (!contributes(tensor)) {
    noGrad(() => held.local.zero_());
    return;
  }
  for (const chunk of saved.chunks) {
    const shared = intersect(chunk, held);
    if (shared === null) continue;
    const { sizes } = shared;
    const within = (region: Region): number[] =>
      shared.offsets.map((start, dim) => start - (region.offsets[dim] as number));
    const starts = within(chunk);
    const into = within(held).reduce(
      (t, start, dim) =>
        t.shape[dim] === sizes[dim] ? t : t.narrow(dim, start, sizes[dim] as number),
      held.local,
    );
    const ranges = starts.map((start, dim): IndexRange => [start, start + (sizes[dim] as number)]);
    yield {
      chunk,
      request: { name: chunk.name, ranges, into },
      part: { path: name, file: chunk.file, name: chunk.name, starts, sizes, checksum: 0 },
    };
  }
}

/** @throws CheckpointError if the file is not the one that the index describes */
function checkChunk(file: SafetensorsFile, chunk: Chunk, { dtype }: SavedTensor): void {
  const stored = file.metaOf(chunk.name);
  const [given, expected] = [
    describe(stored.dtype.name, stored.shape),
    describe(dtypeByName(dtype)?.name as string, chunk.sizes),
  ];
  if (given === expected) return;
  throw new CheckpointError(
    `${file.path}: "${chunk.name}" is ${given}, the index says ${expected}: the file belongs to ` +
      'another checkpoint',
    { file: file.path, tensor: chunk.name },
  );
}
