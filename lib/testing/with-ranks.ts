/** Tests of several ranks, for mocha and its like. */
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
   * `'local'` (the default): functions of this process. `'process'`: a process each, that runs this
   * one test.
   */
  mode?: 'local' | 'process';
  /** `'shm'` by default. */
  backend?: string;
  /** How long ranks wait for each other. 20 seconds by default: a test that hangs should say so. */
  timeoutMs?: number;
  /**
   * Of `local` ranks: the order in which they take turns, as for `launch`, so that a race found
   * once comes again.
   */
  seed?: number | null;
  /** Of `local` ranks: what goes wrong, as for `launch`. */
  faults?: readonly RankFault[] | null;
}

/** What mocha gives a test as `this`. */
interface TestContext {
  timeout?(ms: number): unknown;
  test?: { fullTitle(): string; file?: string | undefined } | undefined;
}

/** To pass to `it`. */
export type TestFunction = (this: TestContext | void) => Promise<void>;

const OP = 'withRanks';
/** Ranks name who did not come before the test runner ends the test. */
const MARGIN_MS = 10_000;

/**
 * A test that runs `fn` on every rank and fails with the first error of one, as that rank has
 * thrown it, its number before the text.
 *
 * Processes run mocha again with this one test, hooks and modules of its file included; they need
 * mocha's context, so pass the result to `it` itself.
 *
 * @throws ArgumentError for bad options
 * @example
 * it('adds', withRanks(4, async (rank) => {
 *   const t = ones([2]);
 *   allReduce(t);
 *   assert.deepEqual([...(await t.read())], [4, 4]);
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
      await fn(rank, size); // what a test returns, nobody reads
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
      `${OP}: mode 'process' runs mocha again with this test alone, so it needs mocha: it('…', withRanks(…))`,
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

/** Mocha's command, of which this process is a worker where it runs several files at a time. */
function mochaOf(runner: string): string {
  return runner.replace(/[\\/]lib[\\/]nodejs[\\/]worker\.c?js$/, '/bin/mocha.js');
}

/** The rank's own error, for the difference of values that runners show. */
function ofRank(error: unknown): unknown {
  const { cause, details } = error as {
    cause?: unknown;
    details?: { rank?: unknown; leftBehind?: readonly number[] };
  };
  if (!(cause instanceof Error) || details?.rank === undefined) return error;
  const open =
    details.leftBehind === undefined
      ? ''
      : ` (not ended since: rank ${details.leftBehind.join(', ')})`;
  cause.message = `rank ${details.rank}: ${cause.message}${open}`;
  return cause;
}
