/**
 * Weights of Hugging Face, in one or several safetensors files: into sharded modules, of which each
 * rank reads its rows, and out of them.
 */
import { mkdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import {
  checkFlag,
  checkFunction,
  checkNumber,
  optionsOf,
  unexpected,
} from '../../core/options.js';
import { DTensor } from '../../dtensor/index.js';
import {
  CheckpointError,
  type IndexRange,
  nn,
  noGrad,
  SafetensorsFile,
  saveSafetensors,
  saveText,
  type Tensor,
} from '../../index.js';
import { SLACK_BYTES } from './load/load.js';
import { Ranks } from './ranks.js';
import { afterEarlierSave } from './save/pending-saves.js';
import { checkFolder } from './save/save.js';
import { contributes, heldRegion, reduced } from './state/shard-regions.js';

const INDEX = 'model.safetensors.index.json';
const SINGLE = 'model.safetensors';

/** Options of {@link loadHuggingFace}. */
export interface HuggingFaceLoadOptions {
  /** The name in the module of a name in the files; null for a tensor that is not loaded. */
  rename?: (name: string) => string | null;
  /** Whether the names of both must be the same. True by default. */
  strict?: boolean;
}

/** The result of {@link loadHuggingFace}. */
export interface HuggingFaceLoaded {
  /** Names of the module that the files do not have; empty unless `strict` is false. */
  readonly missing: string[];
  /** Names of the files, after `rename`, that the module does not have. */
  readonly unexpected: string[];
  /** Bytes of tensors that this rank has read. */
  readonly bytesRead: number;
}

/**
 * Loads the weights of Hugging Face into a module whose parameters may be sharded in any way. Each
 * rank reads the bytes of its own shards. Values are converted to the dtypes of the module. All
 * ranks call it together.
 *
 * @param source - a folder with `model.safetensors.index.json` or `model.safetensors`, or one file
 * @throws CheckpointError on all ranks if a file is missing or damaged, or names or shapes differ;
 * ArgumentError
 * @example
 * const rename = (name: string) => name.replace(/^transformer\./, '');
 * await saveSafetensors('gpt2.safetensors', { 'transformer.weight': ones([8, 8]) });
 * const layer = new nn.Linear(8, 8, false);
 * await loadHuggingFace('gpt2.safetensors', layer, { rename });
 * layer.weight.equal(ones([8, 8])); // true
 */
export async function loadHuggingFace(
  source: string,
  module: nn.AnyModule,
  options: HuggingFaceLoadOptions = {},
): Promise<HuggingFaceLoaded> {
  const op = 'loadHuggingFace';
  checkFolder(op, source);
  if (!(module instanceof nn.Module)) throw unexpected(op, 'module', 'an nn.Module', module);
  const { rename = (name: string) => name, strict = true } = optionsOf(
    op,
    options,
    'rename strict',
  );
  checkFunction(op, 'rename', rename);
  checkFlag(op, 'strict', strict);
  const ranks = new Ranks();
  await afterEarlierSave(ranks);
  const files = await ranks.fromFirst(op, () => weightMap(source));
  const counts = { bytesRead: 0 };
  let found: Matches | null = null;
  await ranks.agree(op, () => {
    found = matchNames(op, source, module, files, rename, strict);
  });
  const matches = found as unknown as Matches;
  await ranks.agree(op, async () => {
    const slackBytes = Math.floor(SLACK_BYTES / Math.max(1, matches.byFile.size));
    for (const [file, wanted] of matches.byFile)
      counts.bytesRead += await readFileInto(file, wanted, slackBytes);
    noGrad(() => {
      for (const finish of matches.finish) finish();
    });
  });
  return { missing: matches.missing, unexpected: matches.unexpected, ...counts };
}

/** The path of the file of each tensor. */
async function weightMap(source: string): Promise<Record<string, string>> {
  if (source.endsWith('.safetensors')) return namesOf(source);
  const index = path.join(source, INDEX);
  const text = await readFile(index, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return null;
    throw new CheckpointError(`${index}: cannot be read: ${error.message}`, { file: index });
  });
  if (text === null) return namesOf(path.join(source, SINGLE));
  const bad = (what: string): CheckpointError =>
    new CheckpointError(`${index}: not a valid index: ${what}`, { file: index });
  let map: unknown;
  try {
    map = (JSON.parse(text) as { weight_map?: unknown }).weight_map;
  } catch (error) {
    throw bad((error as Error).message);
  }
  if (typeof map !== 'object' || map === null) throw bad('expected "weight_map" to be an object');
  // A million names share the path of a file.
  const paths = new Map<unknown, string>();
  const files = map as Record<string, string>;
  for (const name in files) {
    const file: unknown = files[name];
    const known = paths.get(file);
    if (known !== undefined) {
      files[name] = known;
      continue;
    }
    if (typeof file !== 'string' || path.basename(file) !== file)
      throw bad(`"${String(file)}" is not a file of the folder`);
    files[name] = path.join(source, file);
    paths.set(file, files[name]);
  }
  return files;
}

async function namesOf(file: string): Promise<Record<string, string>> {
  const opened = await SafetensorsFile.open(file);
  try {
    return Object.fromEntries(opened.names.map((name) => [name, file]));
  } finally {
    await opened.close();
  }
}

/** A tensor of a file, and that of the module. */
interface Wanted {
  readonly name: string;
  readonly key: string;
  readonly tensor: Tensor;
}

interface Matches {
  readonly byFile: Map<string, Wanted[]>;
  readonly missing: string[];
  readonly unexpected: string[];
  readonly finish: (() => void)[];
}

function matchNames(
  op: string,
  source: string,
  module: nn.AnyModule,
  files: Readonly<Record<string, string>>,
  rename: (name: string) => string | null,
  strict: boolean,
): Matches {
  const state = module.stateDict({ keepVars: true });
  const byFile = new Map<string, Wanted[]>();
  const loaded = new Set<Tensor>();
  const unexpectedNames: string[] = [];
  for (const name in files) {
    const file = files[name] as string;
    const key = rename(name);
    if (key === null) continue;
    const tensor = Object.hasOwn(state, key) ? state[key] : undefined;
    if (tensor === undefined) {
      unexpectedNames.push(key);
      continue;
    }
    if (loaded.has(tensor)) continue; // a shared parameter under its other name
    loaded.add(tensor);
    const wanted = byFile.get(file) ?? [];
    wanted.push({ name, key, tensor });
    byFile.set(file, wanted);
  }
  const missing = Object.entries(state).flatMap(([key, t]) => (loaded.has(t) ? [] : [key]));
  if (strict && (missing.length > 0 || unexpectedNames.length > 0))
    throw new CheckpointError(
      `${op}: ${source} does not fit the module: it lacks [${missing.slice(0, 10).join(', ')}], ` +
        `the module lacks [${unexpectedNames.slice(0, 10).join(', ')}]. Map names by rename, or ` +
        'pass strict: false.',
      { op, missing, unexpected: unexpectedNames },
    );
  const own = new Set([...module.parameters(), ...module.buffers()].map((t) => t.untypedStorage()));
  const hasCopies = Object.values(state).some((t) => !own.has(t.untypedStorage()));
  const finish = hasCopies ? [() => void module.loadStateDict(state)] : [];
  return { byFile, missing, unexpected: unexpectedNames, finish };
}

/** Reads this rank's parts of tensors of a file; returns the bytes that were read. */
async function readFileInto(
  file: string,
  wanted: readonly Wanted[],
  slackBytes: number,
): Promise<number> {
  const opened = await SafetensorsFile.open(file);
  try {
    const requests = wanted.flatMap(({ name, key, tensor }) => {
      const { shape } = opened.metaOf(name);
      if (shape.length !== tensor.shape.length || shape.some((n, dim) => n !== tensor.shape[dim]))
        throw new CheckpointError(
          `${file}: "${name}" has shape [${shape.join(', ')}], "${key}" of the module ` +
            `[${tensor.shape.join(', ')}]`,
          { file, tensor: name, parameter: key },
        );
      const held = heldRegion(tensor);
      if (held === null) return [];
      if (!contributes(tensor)) noGrad(() => held.local.zero_());
      if (!contributes(tensor) || held.local.numel() === 0) return [];
      const ranges = held.sizes.map((size, dim): IndexRange => {
        const start = held.offsets[dim] as number;
        return [start, start + size];
      });
      return [{ name, ranges, into: held.local }];
    });
    await opened.readInto(requests, { slackBytes });
    return opened.bytesRead;
  } finally {
    await opened.close();
  }
}

/** Options of {@link saveHuggingFace}. */
export interface HuggingFaceSaveOptions {
  /** The name in the files of a name in the module; null for a tensor that is not saved. */
  rename?: (name: string) => string | null;
  /** The most bytes of a file; 5 GB by default. */
  maxShardBytes?: number;
}

/**
 * Writes the whole tensors of a module, whose parameters may be sharded in any way, as Hugging Face
 * stores them: `model.safetensors`, or several files with an index. Ranks take turns in writing,
 * and the tensors of one file are in memory at a time. Shared parameters are stored once. All ranks
 * call it together.
 *
 * @throws CheckpointError on all ranks if a file cannot be written; ArgumentError
 */
export async function saveHuggingFace(
  folder: string,
  module: nn.AnyModule,
  options: HuggingFaceSaveOptions = {},
): Promise<void> {
  const op = 'saveHuggingFace';
  checkFolder(op, folder);
  if (!(module instanceof nn.Module)) throw unexpected(op, 'module', 'an nn.Module', module);
  const { rename = (name: string) => name, maxShardBytes = 5e9 } = optionsOf(
    op,
    options,
    'rename maxShardBytes',
  );
  checkFunction(op, 'rename', rename);
  checkNumber(op, 'maxShardBytes', maxShardBytes, { from: 1 });
  const ranks = new Ranks();
  await afterEarlierSave(ranks);
  await ranks.fromFirst(op, async () => {
    await mkdir(folder, { recursive: true });
    return null;
  });
  const groups = groupBySize(module, rename, maxShardBytes);
  const weights: Record<string, string> = {};
  let total = 0;
  for (const [i, group] of groups.entries()) {
    const file = fileName(i, groups.length);
    for (const [name, t] of group) {
      weights[name] = file;
      total += t.numel() * t.dtype.itemsize;
    }
    await ranks.agree(op, async () => {
      const whole = noGrad(() => group.map(([name, t]): [string, Tensor] => [name, wholeOf(t)]));
      if (ranks.rank === i % ranks.size)
        await saveSafetensors(path.join(folder, file), Object.fromEntries(whole), {
          metadata: { format: 'pt' },
        });
      whole.forEach(([, t], at) => {
        if (t.sharding === null && group[at]?.[1].sharding !== null) t.dispose();
      });
    });
  }
  if (groups.length === 1) return;
  const index = { metadata: { total_size: total }, weight_map: weights };
  await ranks.agree(op, async () => {
    if (ranks.rank === 0)
      await saveText(path.join(folder, INDEX), `${JSON.stringify(index, null, 2)}\n`);
  });
}

function groupBySize(
  module: nn.AnyModule,
  rename: (name: string) => string | null,
  most: number,
): [name: string, tensor: Tensor][][] {
  const groups: [string, Tensor][][] = [[]];
  const seen = new Set<Tensor>();
  let bytes = 0;
  for (const [own, tensor] of Object.entries(module.stateDict({ keepVars: true }))) {
    const name = rename(own);
    if (name === null || seen.has(tensor)) continue;
    seen.add(tensor);
    const size = tensor.numel() * tensor.dtype.itemsize;
    if (bytes > 0 && bytes + size > most) {
      groups.push([]);
      bytes = 0;
    }
    bytes += size;
    groups.at(-1)?.push([name, tensor]);
  }
  return groups;
}

const wholeOf = (t: Tensor): Tensor =>
  t instanceof DTensor ? reduced(t).detach().fullTensor() : t.detach();

function fileName(i: number, count: number): string {
  if (count === 1) return SINGLE;
  const digits = (n: number): string => String(n).padStart(5, '0');
  return `model-${digits(i + 1)}-of-${digits(count)}.safetensors`;
}
