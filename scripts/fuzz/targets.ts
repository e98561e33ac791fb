/**
 * Targets of fuzzing under AddressSanitizer and UndefinedBehaviorSanitizer: the addon is built in a
 * folder of its own (build/sanitize), and the targets of test/fuzz run one after the other, each in
 * a process that may crash.
 */
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { buildIn, root } from './build.js';

const folder = path.join(root, 'build', 'sanitize');
const sanitized = ['ops', 'addon', 'workers', 'checkpoint'] as const;
/** `compile` is about results, and not memory: it runs by name. */
export const targets = [...sanitized, 'compile'] as const;
/** Without a new case for so long, a process hangs. */
const HANG_SECONDS = 90;
const PROCESS_SECONDS = 30;

export interface TargetOptions {
  seconds: number;
  seed: number;
  target?: string;
  case?: number;
  plain?: boolean;
  jobs: number;
}

/** Where the compiler keeps a run-time library of its own. */
function compilerLibrary(name: string): string {
  const { stdout } = spawnSync('g++', [`-print-file-name=${name}`], { encoding: 'utf8' });
  return stdout?.trim() ?? name;
}

/**
 * Leaks are not asked for: the engine keeps far too much at its end. Running out of memory is not a
 * fault either.
 */
function sanitizerEnvironment(): NodeJS.ProcessEnv {
  return {
    LD_PRELOAD: `${compilerLibrary('libasan.so')} ${compilerLibrary('libubsan.so')}`,
    ASAN_OPTIONS: 'detect_leaks=0:allocator_may_return_null=1:detect_odr_violation=0',
    UBSAN_OPTIONS: 'halt_on_error=1:print_stacktrace=1',
    SHARDWISE_PREBUILD: folder, // where node-gyp-build looks instead of in the package
  };
}

/**
 * One process that runs cases until its time is over. Resolves to the number of the case it stopped
 * at, null when all went well.
 */
function runProcess(
  target: string,
  seed: number,
  first: number,
  seconds: number,
  options: TargetOptions,
): Promise<number | null> {
  const scratch = mkdtempSync(path.join(tmpdir(), 'shardwise-fuzz-'));
  const progress = path.join(scratch, 'case');
  const count = options.case === undefined ? '1e9' : '1';
  const child = spawn(
    process.execPath,
    [
      // else Node takes the signal of a bad access, and no report is written
      '--disable-wasm-trap-handler',
      '--import',
      'tsx',
      'test/fuzz/child.ts',
      target,
      String(seed),
      String(first),
      count,
      String(seconds),
    ],
    {
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
    },
  );
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

/**
 * A target for its share of the time, in processes of limited age, so that a finding is not far
 * from its cause.
 */
async function runTarget(
  target: string,
  seconds: number,
  options: TargetOptions,
): Promise<boolean> {
  const deadline = Date.now() + seconds * 1000;
  for (let seed = options.seed; ; seed++) {
    const left = Math.ceil((deadline - Date.now()) / 1000);
    const stopped = await runProcess(
      target,
      seed,
      options.case ?? 0,
      Math.min(PROCESS_SECONDS, left),
      options,
    );
    if (stopped !== null) {
      console.error(
        `FOUND by ${target}. Again: npm run fuzz -- --target ${target} --seed ${seed} --case ${stopped}${options.plain ? ' --plain' : ''}`,
      );
      console.error('Where one case is not enough, all before it: the same without --case.');
      return false;
    }
    if (options.case !== undefined || Date.now() >= deadline) return true;
  }
}

/** Runs one target, or all in turn. */
export async function fuzzTargets(options: TargetOptions): Promise<void> {
  const { target = 'all' } = options;
  if (target !== 'all' && !targets.some((name) => name === target))
    throw new Error(`the target is one of ${targets.join(', ')}; all`);
  if (!options.plain) buildIn(folder, ['SHARDWISE_SANITIZE=ON'], options.jobs);
  console.log(`seed ${options.seed}`);
  const chosen = target === 'all' ? sanitized : [target];
  for (const each of chosen) {
    if (!(await runTarget(each, options.seconds / chosen.length, options))) process.exitCode = 1;
  }
}
