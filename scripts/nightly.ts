/**
 * What a schedule of CI runs: `npm run nightly`. Its parts are commands of `npm run fuzz`, with new
 * seeds, and the suites of which `npm test` runs a part. All run, also after one that finds something. Prints what ran, and ends with 1 if a part
 * found something or could not run.
 *
 *   npm run nightly                              about an hour and a half
 *   npm run nightly -- --seconds 20 --minutes 1  short
 *   npm run nightly -- --only saves,memory       some parts
 */
import { spawnSync } from 'node:child_process';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import { Command } from 'commander';

interface Options {
  readonly seconds: number;
  readonly minutes: number;
  readonly seed: number;
  readonly jobs: number;
  readonly only?: string;
}

/** The suites that multiply variants, whole. */
const MULTIPLIED = [
  'parallel/features/pairs-of-features',
  ...['fully-shard', 'flat-param', 'data-parallel'].map((way) => `parallel/${way}/compiled-models`),
].map((name) => `test/${name}.test.ts`);

const fuzz = (...args: string[]): string[] => ['--import', 'tsx', 'scripts/fuzz.ts', ...args];

/** The arguments of Node for each part. */
function partsOf({ seconds, minutes, seed, jobs }: Options): Record<string, readonly string[]> {
  const drawn = ['--seed', String(seed)];
  const compilers = ['--jobs', String(jobs)];
  const time = ['--seconds', String(seconds)];
  return {
    sanitized: fuzz('all', ...time, ...drawn, ...compilers),
    compile: fuzz('compile', '--plain', ...time, ...drawn),
    races: fuzz('races', ...compilers),
    saves: fuzz('saves'),
    memory: fuzz('memory'),
    faults: fuzz('faults', '--seconds', String(minutes * 60), ...drawn),
    suites: ['scripts/test.mjs', ...MULTIPLIED],
  };
}

function runAll(options: Options): void {
  const parts = partsOf(options);
  const names = options.only?.split(',') ?? Object.keys(parts);
  const unknown = names.filter((name) => parts[name] === undefined);
  if (unknown.length > 0)
    throw new Error(
      `expected parts of ${Object.keys(parts).join(', ')}, got ${unknown.join(', ')}`,
    );
  const lines = names.map((name) => {
    const args = parts[name] as readonly string[];
    console.log(`\n--- ${name}: node ${args.join(' ')}`);
    const start = Date.now();
    const { status, signal } = spawnSync(process.execPath, args, {
      cwd: path.join(import.meta.dirname, '..'),
      stdio: 'inherit',
      env: { ...process.env, SHARDWISE_TEST_ALL: '1' },
    });
    if (status !== 0) process.exitCode = 1;
    const outcome = status === 0 ? 'nothing found' : `FAILED (${signal ?? `exit ${status}`})`;
    return `${name}: ${outcome}, ${Math.round((Date.now() - start) / 1000)} s`;
  });
  console.log(`\nseed ${options.seed}\n${lines.join('\n')}`);
}

await new Command('nightly')
  .option('--seconds <n>', 'of the fuzz targets', Number, 1200)
  .option('--minutes <n>', 'of signals to ranks', Number, 30)
  .option('--seed <n>', 'which cases; printed', Number, Date.now() % 1_000_000)
  .option('--jobs <n>', 'compilers at a time', Number, availableParallelism())
  .option('--only <parts>', 'some parts, with commas between')
  .action(runAll)
  .parseAsync();
