/** Suites and tests that need GPUs, for any runner with `describe` and `it`. */
import { ArgumentError } from '../core/errors.js';
import { checkFunction, checkNumber, withDefaults } from '../core/options.js';
import { deviceCount, whyUnavailable } from '../cuda/index.js';

/** Options of {@link gpu}'s suites and tests. */
export interface GpuOptions {
  /** GPUs that it needs; 1 by default. */
  count?: number;
}

/** What a runner declares suites and tests with. */
export type Declare = ((title: string, body: () => unknown) => unknown) & {
  skip: (title: string, body: () => unknown) => unknown;
};

/** The functions of a runner, as mocha, jest and vitest have them. */
export interface TestRunner {
  /** Declares a suite. */
  describe: Declare;
  /** Declares a test. */
  it: Declare;
}

/** Declares a suite or a test that needs GPUs. */
export type DeclareWithGpu<F> = (title: string, body: F, options?: GpuOptions) => void;

/** The body of a suite, which declares tests. */
export type SuiteBody = () => void;
/** The body of a test. With mocha, `this` is its context. */
export type TestBody = (this: unknown) => unknown;

/** Suites and tests that need GPUs. See {@link gpu}. */
export interface GpuTests {
  /** GPUs that tests may use: 0 also where `SHARDWISE_TEST_GPU=off`. */
  readonly count: number;
  /** A suite that needs GPUs. */
  describe: DeclareWithGpu<SuiteBody>;
  /** A test that needs GPUs. */
  it: DeclareWithGpu<TestBody>;
  /** The same for functions of a runner that has no globals, such as vitest's or `node:test`'s. */
  using(runner: TestRunner): GpuTests;
}

const SETTINGS = ['auto', 'require', 'off'] as const;
const VARIABLE = 'SHARDWISE_TEST_GPU';

function setting(): (typeof SETTINGS)[number] {
  const given = process.env[VARIABLE] || 'auto';
  const found = SETTINGS.find((each) => each === given);
  if (found === undefined)
    throw new ArgumentError(`${VARIABLE}: expected ${SETTINGS.join(', ')}, got '${given}'`);
  return found;
}

/** Why so many GPUs cannot be used; null if they can. */
function missing(count: number): string | null {
  if (setting() === 'off') return `${VARIABLE}=off`;
  const found = deviceCount();
  if (found >= count) return null;
  const why = whyUnavailable() === null ? '' : ': `npx shardwise doctor` says why';
  return `needs ${count} ${count === 1 ? 'GPU' : 'GPUs'}, found ${found}${why}`;
}

/** The runner's globals. */
function globals(op: string): TestRunner {
  const { describe, it } = globalThis as Partial<TestRunner>;
  if (typeof describe === 'function' && typeof it === 'function') return { describe, it };
  throw new ArgumentError(
    `${op}: expected a test runner with the globals describe and it. For vitest, set ` +
      '`globals: true`, or pass what it exports: gpu.using({ describe, it })',
  );
}

function testsOf(runnerOf: (op: string) => TestRunner): GpuTests {
  const declare =
    (name: 'describe' | 'it') =>
    (title: string, body: () => unknown, options: GpuOptions = {}): void => {
      const op = `gpu.${name}`;
      checkFunction(op, 'the body', body);
      const { count } = withDefaults<Required<GpuOptions>>(op, { count: 1 }, options);
      checkNumber(op, 'count', count, { from: 1, whole: true });
      const runner = runnerOf(op);
      const reason = missing(count);
      if (reason === null) runner[name](title, body);
      else if (setting() === 'require')
        runner.it(title, () => {
          throw new Error(`${VARIABLE}=require: "${title}" ${reason}`);
        });
      else runner[name].skip(`${title} (skipped: ${reason})`, body);
    };
  return {
    get count() {
      return setting() === 'off' ? 0 : deviceCount();
    },
    describe: declare('describe'),
    it: declare('it'),
    using: ({ describe, it }) => testsOf(() => ({ describe, it })),
  };
}

/**
 * Suites and tests that need GPUs: `gpu.describe` and `gpu.it` are the runner's `describe` and `it`
 * where the GPUs are there. Elsewhere they skip, with the reason in the title, or fail if
 * `SHARDWISE_TEST_GPU=require`. `SHARDWISE_TEST_GPU=off` skips them everywhere.
 *
 * @throws ArgumentError if there are no globals `describe` and `it`, for a count below 1, and for
 * another value of `SHARDWISE_TEST_GPU`
 * @example
 * gpu.describe('a layer on two GPUs', () => {
 *   it('adds', withRanks(2, async (rank) => {
 *     const t = ones([2], { device: 'cuda' });
 *     allReduce(t);
 *     assert.deepEqual(await t.read(), Float32Array.of(2, 2));
 *   }));
 * }, { count: 2 });
 */
export const gpu: GpuTests = testsOf(globals);
