/**
 * Fuzzes saves: several at once, in processes and threads that are killed at random moments, over
 * links and special files. The name must always hold a complete file of one save, never older than
 * the last reported one, and no temporary file may stay.
 */
import { execFileSync, fork } from 'node:child_process';
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { Worker } from 'node:worker_threads';
import { CheckpointError, full, loadSafetensors, saveSafetensors } from '../../lib/index.js';
import { programArguments } from '../run-program.js';
import { describeError, Finding, type Rng } from './rng.js';

const writerArguments = programArguments('fuzz/checkpoint-writer');
const [writer, execArgv] = [writerArguments.at(-1) as string, writerArguments.slice(0, -1)];
const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** The value of all elements of the file. @throws Finding if the file mixes several saves */
async function valueOf(file: string, elements: number): Promise<number> {
  const loaded = await loadSafetensors(file).catch((error: unknown) => {
    throw new Finding(`a file that was saved cannot be loaded: ${describeError(error)}`);
  });
  const values = loaded['w']?.tolist() as number[];
  loaded['w']?.dispose();
  if (values.length !== elements || values.some((value) => value !== values[0]))
    throw new Finding(`a torn file: ${values.length} elements of ${[...new Set(values)]}`);
  return values[0] as number;
}

async function save(
  file: string,
  elements: number,
  value: number,
  chunkBytes: number,
): Promise<void> {
  const w = full([elements], value);
  await saveSafetensors(file, { w }, { chunkBytes });
  w.dispose();
}

function requireAlone(folder: string, names: readonly string[]): void {
  const found = readdirSync(folder).sort();
  if (found.join() !== [...names].sort().join())
    throw new Finding(`the folder holds ${found}, not ${names}`);
}

interface Running {
  /** The last number whose save was reported. */
  saved: number;
  stop(): Promise<void>;
}

function startProcess(args: readonly string[]): Promise<Running> {
  const child = fork(writer, args, { execArgv });
  const running: Running = {
    saved: Number.NEGATIVE_INFINITY,
    stop: () =>
      new Promise((resolve) => {
        child.once('exit', () => resolve());
        child.kill('SIGKILL');
      }),
  };
  return started(running, (message, failed) =>
    child.on('message', message).on('exit', () => failed(new Finding('a writer ended'))),
  );
}

function startThread(args: readonly string[]): Promise<Running> {
  const worker = new Worker(writer, { workerData: args, execArgv });
  const running: Running = {
    saved: Number.NEGATIVE_INFINITY,
    stop: async () => void (await worker.terminate()),
  };
  return started(running, (message, failed) => worker.on('message', message).on('error', failed));
}

function started(
  running: Running,
  listen: (message: (value: unknown) => void, failed: (error: Error) => void) => void,
): Promise<Running> {
  return new Promise((resolve, reject) =>
    listen((value) => {
      running.saved = value as number;
      resolve(running);
    }, reject),
  );
}

/** Runs one or several writers and kills them at a random moment. */
async function kill(
  rng: Rng,
  folder: string,
  start: (args: readonly string[]) => Promise<Running>,
): Promise<void> {
  const file = path.join(folder, 'm.safetensors');
  const elements = rng.pick([10, 1000, 50_000]);
  await save(file, elements, 0, 2 ** 20);
  const count = rng.pick([1, 1, 2]);
  const firsts = rng.list(count, (i) => 1 + i * 1_000_000);
  const writers = await Promise.all(
    firsts.map((first) =>
      start([file, String(first), String(elements), String(rng.pick([64, 4096, 2 ** 20]))]),
    ),
  );
  for (let reads = rng.int(0, 3); reads > 0; reads--) await valueOf(file, elements);
  await sleep(rng.unit() * 60);
  await Promise.all(writers.map((running) => running.stop()));
  const value = await valueOf(file, elements);
  const by = writers.findIndex(
    (_, i) => value >= (firsts[i] as number) - 1 && value < (firsts[i] as number) + 900_000,
  );
  const last = writers[Math.max(0, by)] as Running;
  if (value < last.saved && count === 1)
    throw new Finding(`the file holds save ${value}, but ${last.saved} was reported`);
  await save(file, elements, -1, 2 ** 20);
  if ((await valueOf(file, elements)) !== -1)
    throw new Finding('a save over a killed writer is lost');
  requireAlone(folder, ['m.safetensors']);
}

/**
 * Overlaps saves of one process to one path, some of which fail. The file must hold the last that
 * resolves.
 */
async function overlap(rng: Rng, folder: string): Promise<void> {
  const file = path.join(folder, 'm.safetensors');
  const elements = rng.pick([1, 100, 5000]);
  await save(file, elements, 0, 2 ** 20);
  let last = 0;
  const saves = rng.list(rng.int(2, 6), async (i) => {
    const w = full([elements], i + 1);
    const chunkBytes = rng.pick([64, 4096, 2 ** 20]);
    const fate = rng.int(0, 3);
    const saving = saveSafetensors(file, { w }, { chunkBytes });
    if (fate === 0) w.fill_(-1);
    if (fate === 1) w.dispose();
    if (fate === 2) w.data = full([1], -2);
    try {
      await saving;
      if (fate === 0) throw new Finding('a tensor that changed was saved');
      last = i + 1;
    } catch (error) {
      if (!(error instanceof CheckpointError) || fate !== 0) throw error;
    }
  });
  await Promise.all(saves);
  if ((await valueOf(file, elements)) !== last)
    throw new Finding(`the file holds ${await valueOf(file, elements)}, not the last save ${last}`);
  requireAlone(folder, ['m.safetensors']);
}

/** Saves over links and to special files. */
async function obstacles(rng: Rng, folder: string): Promise<void> {
  const file = path.join(folder, 'm.safetensors');
  const real = path.join(folder, 'real');
  const mode = rng.pick([0o600, 0o640, 0o666, 0o400]);
  switch (rng.int(0, 3)) {
    case 0: {
      symlinkSync(rng.pick(['real', real, './real']), file);
      if (rng.chance(0.5)) writeFileSync(real, 'before', { mode: 0o600 });
      await save(file, 10, 5, 64);
      if (!lstatSync(file).isSymbolicLink() || !lstatSync(real).isFile())
        throw new Finding('a link was not followed');
      if ((await valueOf(file, 10)) !== 5)
        throw new Finding('the file behind a link was not written');
      return requireAlone(folder, ['m.safetensors', 'real']);
    }
    case 1: {
      writeFileSync(file, 'before');
      chmodSync(file, mode);
      await save(file, 10, 5, 64);
      if ((statSync(file).mode & 0o777) !== mode)
        throw new Finding(
          `mode ${mode.toString(8)} became ${(statSync(file).mode & 0o777).toString(8)}`,
        );
      return requireAlone(folder, ['m.safetensors']);
    }
    case 2: {
      if (rng.chance(0.5)) mkdirSync(file);
      else execFileSync('mkfifo', [file]);
      break;
    }
    default:
      symlinkSync(
        rng.pick(['m.safetensors', '/dev/zero', '/proc/self/mem', '.', 'none/none']),
        file,
      );
  }
  const before = lstatSync(file).ino;
  for (const attempt of [
    () => save(file, 10, 5, 64),
    async () => void (await loadSafetensors(file)),
  ]) {
    const error = await attempt().then(
      () => null,
      (reason: unknown) => reason,
    );
    if (!(error instanceof CheckpointError))
      throw new Finding(`not a CheckpointError: ${describeError(error)}`);
  }
  if (lstatSync(file).ino !== before) throw new Finding('a special file was replaced');
  requireAlone(folder, ['m.safetensors']);
}

export const scenes = {
  overlaps: overlap,
  obstacles,
  'killed processes': (rng: Rng, folder: string) => kill(rng, folder, startProcess),
  'terminated workers': (rng: Rng, folder: string) => kill(rng, folder, startThread),
} as const;

/** Runs one scenario in an empty folder. @throws Finding */
export async function fuzzFiles(
  name: keyof typeof scenes,
  rng: Rng,
  folder: string,
): Promise<void> {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder);
  await scenes[name](rng, folder);
}
