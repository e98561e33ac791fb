/**
 * Fuzzes the native boundary: `npm run fuzz`. Builds the addon with AddressSanitizer and UndefinedBehaviorSanitizer in a folder of its own
 * (build/sanitize), then runs the targets of test/fuzz one after the other, each in a process that may crash.
 *
 *   npm run fuzz                                       all targets, a minute together
 *   npm run fuzz -- --seconds 600 --seed 7             longer, other cases
 *   npm run fuzz -- checkpoint --seconds 120           one target, as with --target
 *   npm run fuzz -- --target ops --seed 7 --case 1234  one case again, each step printed
 *   npm run fuzz -- --plain                            with the addon as it is built, without sanitizers
 *   npm run fuzz -- throws                             instead: ten million calls that fail, where JavaScript is called from outside
 *   npm run fuzz -- throws --seconds 600               or as many as fit
 *   npm run fuzz -- store --seconds 600 --seed 7       instead: hostile clients against a TCPStore on 127.0.0.1
 */
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Command } from 'commander';
import { type Counts, throwsCampaign } from '../test/fuzz/throws.js';
import { storeCampaign } from '../test/fuzz/store.js';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..');
const folder = path.join(root, 'build', 'sanitize');
export const targets = ['ops', 'addon', 'workers', 'checkpoint'] as const;
/** Without a new case for so long, a process hangs. */
const HANG_SECONDS = 90;
const PROCESS_SECONDS = 30;

interface Options {
  seconds: number;
  seed: number;
  target?: string;
  case?: number;
  plain?: boolean;
  jobs: number;
}

function run(command: string, args: string[]): void {
  const { status, error } = spawnSync(command, args, { cwd: root, stdio: 'inherit' });
  if (status !== 0) throw new Error(`${command} failed${error ? `: ${error.message}` : ''}`);
}

function build(jobs: number): void {
  const options = ['SHARDWISE_SANITIZE=ON', 'SHARDWISE_CUDA=OFF', 'CMAKE_BUILD_TYPE=Release', `SHARDWISE_OUTPUT=${path.join(folder, 'build')}`];
  run('cmake', ['-S', '.', '-B', folder, ...options.map((option) => `-D${option}`)]);
  run('cmake', ['--build', folder, '--parallel', String(jobs)]);
}

/** Where the compiler keeps a run-time library of its own. */
function compilerLibrary(name: string): string {
  const { stdout } = spawnSync('g++', [`-print-file-name=${name}`], { encoding: 'utf8' });
  return stdout?.trim() ?? name;
}

/** Leaks are not asked for: the engine keeps far too much at its end. Running out of memory is not a fault either. */
function sanitizerEnvironment(): NodeJS.ProcessEnv {
  return {
    LD_PRELOAD: `${compilerLibrary('libasan.so')} ${compilerLibrary('libubsan.so')}`,
    ASAN_OPTIONS: 'detect_leaks=0:allocator_may_return_null=1:detect_odr_violation=0',
    UBSAN_OPTIONS: 'halt_on_error=1:print_stacktrace=1',
    SHARDWISE_PREBUILD: folder, // where node-gyp-build looks instead of in the package
  };
}

/** One process that runs cases until its time is over. Resolves to the number of the case it stopped at, null when all went well. */
function runProcess(target: string, seed: number, first: number, seconds: number, options: Options): Promise<number | null> {
  const scratch = mkdtempSync(path.join(tmpdir(), 'shardwise-fuzz-'));
  const progress = path.join(scratch, 'case');
  const count = options.case === undefined ? '1e9' : '1';
  const child = spawn(process.execPath, ['--import', 'tsx', 'test/fuzz/child.ts', target, String(seed), String(first), count, String(seconds)], {
    cwd: root,
    stdio: 'inherit',
    env: {
      ...process.env,
      // A shape drawn at random may ask for any amount.
      SHARDWISE_CPU_MEMORY_LIMIT: String(256 * 2 ** 20),
      SHARDWISE_FUZZ_PROGRESS: progress,
      ...(options.case === undefined ? {} : { SHARDWISE_FUZZ_TRACE: '1' }),
      ...(options.plain ? {} : sanitizerEnvironment()),
    },
  });
  const lastCase = (): number => {
    try {
      return Number(readFileSync(progress, 'utf8'));
    } catch {
      return first;
    }
  };
  return new Promise((resolve) => {
    let [seen, since] = [-1, Date.now()];
    const watch = setInterval(() => {
      if (lastCase() !== seen) [seen, since] = [lastCase(), Date.now()];
      else if (Date.now() - since > HANG_SECONDS * 1000) {
        console.error(`case ${seen} hangs`);
        child.kill('SIGKILL');
      }
    }, 1000);
    child.on('exit', (code) => {
      clearInterval(watch);
      const stopped = lastCase();
      rmSync(scratch, { recursive: true, force: true });
      resolve(code === 0 ? null : stopped);
    });
  });
}

/** A target for its share of the time, in processes of limited age, so that a finding is not far from its cause. */
async function runTarget(target: string, seconds: number, options: Options): Promise<boolean> {
  const deadline = Date.now() + seconds * 1000;
  for (let seed = options.seed; ; seed++) {
    const left = Math.ceil((deadline - Date.now()) / 1000);
    const stopped = await runProcess(target, seed, options.case ?? 0, Math.min(PROCESS_SECONDS, left), options);
    if (stopped !== null) {
      console.error(`FOUND by ${target}. Again: npm run fuzz -- --target ${target} --seed ${seed} --case ${stopped}${options.plain ? ' --plain' : ''}`);
      console.error('Where one case is not enough, all before it: the same without --case.');
      return false;
    }
    if (options.case !== undefined || Date.now() >= deadline) return true;
  }
}

const THROWING_CALLS = 1e7;
const THROWING_CALLS_A_PROCESS = 250_000;

/** Errors that are thrown while V8 collects garbage: test/fuzz/throws.ts. Against the addon as it is built. */
async function failCalls({ seconds }: { seconds: number }): Promise<void> {
  const counts = Object.values(await throwsCampaign(THROWING_CALLS, THROWING_CALLS_A_PROCESS, seconds, (death) => console.error(`FOUND: ${death}`)));
  const sum = (count: (of: Counts) => number): number => counts.reduce((total, each) => total + count(each), 0);
  console.log(`throws: ${sum((of) => of.calls)} calls failed in ${sum((of) => of.processes)} processes, of which ${sum((of) => of.deaths)} died`);
  for (const { context, calls, processes, deaths } of counts) console.log(`  ${context}: ${calls} calls in ${processes} processes, ${deaths} died`);
  if (sum((of) => of.deaths) > 0) process.exitCode = 1;
}

/** Hostile clients of a store: test/fuzz/store.ts. */
async function attackStore({ seconds, seed }: { seconds: number; seed: number }): Promise<void> {
  console.log(`seed ${seed}`);
  const { attacks, rounds, slowestMs, serverBytes, findings } = await storeCampaign(seed, seconds);
  for (const [name, count] of Object.entries(attacks)) console.log(`  ${name}: ${count}`);
  console.log(`store: ${rounds} rounds of true ranks, the slowest ${slowestMs} ms; the server had ${serverBytes >> 20} MiB at most`);
  for (const finding of findings) console.error(`FOUND: ${finding}`);
  if (findings.length > 0) process.exitCode = 1;
}

async function main(options: Options): Promise<void> {
  if (options.target !== undefined && !targets.some((name) => name === options.target)) throw new Error(`the target is one of ${targets.join(', ')}`);
  if (!options.plain) build(options.jobs);
  console.log(`seed ${options.seed}`);
  const chosen = options.target === undefined ? targets : [options.target];
  for (const target of chosen) {
    if (!(await runTarget(target, options.seconds / chosen.length, options))) process.exitCode = 1;
  }
}

const program = new Command('fuzz').enablePositionalOptions();
program
  .argument('[target]', `one of ${targets.join(', ')}; all`)
  .option('--seconds <n>', 'time of all targets together, without the build', Number, 60)
  .option('--seed <n>', 'which cases; printed', Number, Date.now() % 1_000_000)
  .option('--target <name>', `one of ${targets.join(', ')}`)
  .option('--case <n>', 'only this one, each step printed', Number)
  .option('--plain', 'the addon as it is built, without sanitizers')
  .option('--jobs <n>', 'compilers at a time', Number, availableParallelism())
  .action((target: string | undefined) => main({ ...program.opts<Options>(), ...(target === undefined ? {} : { target }) }));
program.command('throws').option('--seconds <n>', 'at most', Number, 3600).action(failCalls);
program
  .command('store')
  .option('--seconds <n>', 'about how long', Number, 60)
  .option('--seed <n>', 'which attacks; printed', Number, Date.now() % 1_000_000)
  .action(attackStore);
await program.parseAsync();
