/**
 * `npm run fuzz -- saves`: lets the n-th call of the system fail in each kind of save, for n from 1
 * until the save passes, once and from then on. After each the checkpoint must be that of before or
 * the new one, as SQLite tests its transactions.
 */
import { execFile, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { programArguments } from '../run-program.js';

export const saveKinds = [
  'safetensors',
  'run',
  'distributed',
  'background',
  'checkpointer',
  'huggingFace',
] as const;
export type SaveKind = (typeof saveKinds)[number];
export const saveErrors = ['EIO', 'ENOSPC'] as const;

const NUMBERS = 5;
const MOST_MS = 300_000;

/** Builds the library that is preloaded. */
function buildLibrary(scratch: string): string {
  const library = path.join(scratch, 'failing-calls.so');
  const source = path.join(import.meta.dirname, 'failing-calls.c');
  const { status, stderr, error } = spawnSync(
    'cc',
    ['-shared', '-fPIC', '-O1', '-o', library, source, '-ldl'],
    { encoding: 'utf8' },
  );
  if (status !== 0) throw new Error(`failing-calls.c is not built: ${error ?? stderr}`);
  return library;
}

/** How many calls failed in a kind of save. @throws what is wrong */
async function failingSaves(
  library: string,
  scratch: string,
  kind: SaveKind,
  error: string,
  laterToo: boolean,
): Promise<number> {
  const [folder, control] = ['files', 'control'].map((of) =>
    path.join(scratch, `${of}-${kind}-${error}-${laterToo}`),
  ) as [string, string];
  mkdirSync(folder);
  writeFileSync(control, new BigInt64Array(NUMBERS));
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [
      ...programArguments('fuzz/failing-saves-body'),
      ...[folder, control, kind, error, laterToo ? '1' : '0'],
    ],
    {
      timeout: MOST_MS,
      killSignal: 'SIGKILL',
      env: {
        ...process.env,
        LD_PRELOAD: library,
        FAILING_CALLS: control,
        FAILING_CALLS_BELOW: folder,
        UV_USE_IO_URING: '0', // its calls pass the library by
      },
    },
  );
  return Number(stdout);
}

/** The number of calls that failed, by kind. @throws Error with what is wrong */
export async function failingSavesCampaign(
  kinds: readonly SaveKind[] = saveKinds,
  errors: readonly string[] = saveErrors,
): Promise<Map<SaveKind, number>> {
  const scratch = mkdtempSync(path.join(tmpdir(), 'shardwise-saves-'));
  const counts = new Map<SaveKind, number>();
  try {
    const library = buildLibrary(scratch);
    for (const kind of kinds)
      for (const error of errors)
        for (const laterToo of [false, true]) {
          const count = await failingSaves(library, scratch, kind, error, laterToo);
          counts.set(kind, (counts.get(kind) ?? 0) + count);
        }
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
  return counts;
}
