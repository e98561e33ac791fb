/** Tests of several ranks, for mocha and similar runners. */
import { types } from 'node:util';
import { ArgumentError } from '../core/errors.js';
import { checkFunction, checkNumber, checkOneOf, withDefaults } from '../core/options.js';
import {
  checkReplay,
  launch,
  launchFunction,
  nodeArguments,
} from '../distributed/launch/launch.js';
import type { RankFault } from '../distributed/local-ranks/fault-injection.js';
import type { RankFunction } from '../distributed/local-ranks/run.js';

/** Options of {@link withRanks}. */
export interface RanksOptions {
  /**
   * `'local'` (the default): ranks are functions of this process. `'process'`: each rank is a
   * process that runs this one test.
   */
  mode?: 'local' | 'process';
  /** The backend; `'shm'` by default. */
  backend?: string;
  /** Timeout of the ranks in milliseconds. 20 seconds by default, so that a hang is reported. */
  timeoutMs?: number;
  /** Schedules `local` ranks in an order drawn from the seed, as for `launch`. */
  seed?: number | null;
  /** Injects faults into `local` ranks, as for `launch`. */
  faults?: readonly RankFault[] | null;
}

/** Mocha's `this` in a test. */
interface TestContext {
  timeout?(ms: number): unknown;
  test?: { fullTitle(): string; file?: string | undefined } | undefined;
}

/** A function to pass to `it`. */
export type TestFunction = (this: TestContext | void) => Promise<void>;

const OP = 'withRanks';
/** Added to the runner's timeout, so that ranks report a missing rank first. */
const MARGIN_MS = 10_000;

/**
 * A test that runs `fn` on every rank. It fails with the first error of a rank, whose message gets
 * the rank as prefix.
 *
 * In mode `'process'` each rank runs mocha again with this one test, including the hooks and
 * modules of its file. That needs mocha's context, so pass the result directly to `it`.
 *
 * @throws ArgumentError for invalid options
 * @example
 * it('adds', withRanks(4, async (rank) => {
 *   const t = ones([2]);
 *   allReduce(t);
 *   assert.deepEqual(await t.read(), Float32Array.of(4, 4));
 * }));
 */
export function withRanks(
  worldSize: number,
  fn: RankFunction<unknown>,
  options: RanksOptions = {},
): TestFunction {
  checkNumber(OP, 'worldSize', worldSize, { from: 1, whole: true });
  checkFunction(OP, 'fn', fn);
  const settings = withDefaults<Required<RanksOptions>>(
    OP,
    { mode: 'local', backend: 'shm', timeoutMs: 20_000, seed: null, faults: null },
    options,
  );
  checkOneOf(OP, 'mode', settings.mode, ['local', 'process']);
  checkReplay(OP, settings);
  return async function test() {
    const { backend, timeoutMs, mode, seed, faults } = settings;
    this?.timeout?.(timeoutMs + MARGIN_MS);
    const run = async (rank: number, size: number): Promise<null> => {
      await fn(rank, size); // the result is ignored
      return null;
    };
    try {
      if (mode === 'local') await launch(worldSize, run, { backend, timeoutMs, seed, faults });
      else await inProcesses(this ?? {}, worldSize, run, { backend, timeoutMs });
    } catch (error) {
      throw ofRank(error);
    }
  };
}

async function inProcesses(
  { test }: TestContext,
  worldSize: number,
  run: RankFunction<null>,
  { backend, timeoutMs }: { backend: string; timeoutMs: number },
): Promise<void> {
  const runner = process.argv[1];
  if (test?.file === undefined || runner === undefined) {
    throw new ArgumentError(
      `${OP}: mode 'process' runs mocha again with this test alone; pass the result to mocha: ` +
        "it('…', withRanks(…)). In vitest and jest, use mode 'local', or launch() of a file",
      { op: OP, argument: 'mode' },
    );
  }
  const title = test.fullTitle();
  const args = [
    test.file,
    '--no-parallel',
    '--grep',
    `^${title.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&')}$`,
    '--reporter',
    'base',
  ];
  const settings = { backend, timeoutMs, env: {}, prefixOutput: true };
  await launchFunction(`test ${title}`, worldSize, run, settings, {
    nodeArgs: nodeArguments(),
    file: mochaOf(runner),
    args,
  });
}

/** Mocha's command; this process may be one of its workers. */
function mochaOf(runner: string): string {
  return runner.replace(/[\\/]lib[\\/]nodejs[\\/]worker\.c?js$/, '/bin/mocha.js');
}

/** The rank's own error, because runners show its actual and expected values. */
function ofRank(error: unknown): unknown {
  const { cause, details } = error as {
    cause?: unknown;
    details?: { rank?: unknown; leftBehind?: readonly number[] };
  };
  // Errors of node:assert are of another realm in jest.
  if (!types.isNativeError(cause) || details?.rank === undefined) return error;
  const open =
    details.leftBehind === undefined
      ? ''
      : ` (still running: rank ${details.leftBehind.join(', ')})`;
  return prefixed(cause, `rank ${details.rank}: `, open) ? cause : error;
}

/** Changes the message and the stack, of which runners print either; false for a frozen error. */
function prefixed(error: Error, before: string, after: string): boolean {
  const { message, stack = '' } = error;
  const text = `${before}${message}${after}`;
  if (!Reflect.set(error, 'message', text)) return false;
  if (!error.stack?.includes(text))
    Reflect.set(
      error,
      'stack',
      stack.replace(message, () => text),
    );
  return true;
}
