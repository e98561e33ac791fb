/** `launch` and `withRanks`: functions as local ranks and as processes. */
import assert from 'node:assert/strict';
import path from 'node:path';
import { nodeArguments } from '../../../lib/distributed/launch/launch.js';
import {
  allReduce,
  barrier,
  DistributedError,
  destroyProcessGroup,
  getRank,
  getWorldSize,
  initProcessGroup,
  isAvailable,
  isInitialized,
  launch,
} from '../../../lib/distributed.js';
import { ArgumentError, full, ones } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import { runProgram } from '../../run-program.js';

describe('launch', function () {
  this.timeout(60_000);

  it('runs a function on ranks of this process, where initProcessGroup changes nothing', async () => {
    const results = await launch(4, async (rank, worldSize) => {
      await initProcessGroup();
      assert.deepEqual([getRank(), getWorldSize(), worldSize], [rank, 4, 4]);
      const t = ones([2]);
      allReduce(t);
      return [rank, [...(await t.read())]];
    });
    assert.deepEqual(
      results,
      [0, 1, 2, 3].map((rank) => [rank, [4, 4]]),
    );
    assert.equal(isInitialized(), false);
    assert.equal(isAvailable(), true);
  });

  it('ends a program that launches itself recursively at its first rank', async () => {
    const program = new URL(
      `../programs/recursive-launch${path.extname(import.meta.url)}`,
      import.meta.url,
    );
    await assert.rejects(
      launch(1, program, { prefixOutput: false, timeoutMs: 20_000 }),
      /this process is rank 0 of a launch already, and a rank cannot launch ranks/,
    );
  });

  it("passes Node's arguments to ranks, except an inline program and debugger ports", () => {
    const given = [
      '--import',
      'tsx',
      '-e',
      'launch(2, file)',
      '--inspect=9229',
      '--input-type=module',
      '--eval=1',
      '--max-old-space-size=900',
      '-p',
      '1',
      '--enable-source-maps',
    ];
    assert.deepEqual(nodeArguments(given), [
      '--import',
      'tsx',
      '--max-old-space-size=900',
      '--enable-source-maps',
    ]);
  });

  it('fails with the error of the rank that failed first', async () => {
    const cause = new RangeError('too far');
    const run = launch(2, async (rank) => {
      if (rank === 1) throw cause;
      const t = ones([1]);
      allReduce(t);
      await t.read();
    });
    await assert.rejects(
      run,
      (error: DistributedError) =>
        error instanceof DistributedError && error.details['rank'] === 1 && error.cause === cause,
    );
  });

  it('does not let a rank join a second world or launch ranks', async () => {
    await launch(1, async () => {
      await assert.rejects(
        launch(2, () => 0),
        /this is rank 0 already/,
      );
      destroyProcessGroup();
      await assert.rejects(initProcessGroup(), /cannot join another one/);
    });
  });

  it('runs a function in processes that reach the same call, with the results of earlier calls', async () => {
    const { first, second } = await runProgram<{ first: unknown; second: unknown }>(
      'distributed/programs/launch-functions',
      'twice',
    );
    assert.deepEqual(first, [
      [0, [3, 3], '0'],
      [1, [3, 3], '1'],
    ]);
    assert.deepEqual(second, [3, 4]);
  });

  it('passes errors of earlier calls to ranks with class, details and causes', async () => {
    const [first, ...ranks] = await runProgram<unknown[][]>(
      'distributed/programs/launch-functions',
      'failed',
    );
    assert.deepEqual(first?.slice(0, 3), [true, 1, true]);
    assert.ok(Object.keys(first?.[3] as object).length > 0, JSON.stringify(first));
    assert.deepEqual(ranks, [first, first]);
  });

  it('returns the error of a process with its name, code and stack', async () => {
    const { message, cause } = await runProgram<{ message: string; cause: Record<string, string> }>(
      'distributed/programs/launch-functions',
      'fails',
    );
    assert.match(message, /^launch: rank 1 \(process \d+\) ended with exit code 1: too far$/);
    assert.deepEqual(
      [cause['name'], cause['message'], cause['code']],
      ['RangeError', 'too far', 'ERR_FAR'],
    );
    assert.match(cause['stack'] as string, /launch-functions\.[jt]s:\d+/);
  });

  it('names the process that failed first, not one that failed as a consequence', async () => {
    assert.match(
      await runProgram<string>('distributed/programs/launch-functions', 'exits'),
      /^launch: rank 1 \(process \d+\) ended with exit code 3/,
    );
  });

  it('fails with a failure that no process has observed', async () => {
    assert.match(
      await runProgram<string>('distributed/programs/launch-functions', 'unread'),
      /^launch: rank \d \(process \d+\) ended with exit code 1: .*rank \d called allReduce of \d float32/,
    );
    assert.deepEqual(
      await runProgram('distributed/programs/launch-functions', 'unread', 'handled'),
      ['returned', 'returned'],
    );
  });

  it('names a rank that awaits a promise which never resolves', async () => {
    interface Stuck {
      message: string;
      cause: string | null;
      next: number[];
    }
    const alone = await runProgram<Stuck>(
      'distributed/programs/launch-functions',
      'stuck',
      'alone',
    );
    assert.match(alone.message, /^launch: rank 1 awaited a promise that never resolves/);
    assert.deepEqual([alone.cause, alone.next], [null, [0, 1]]);
    const missed = await runProgram<Stuck>(
      'distributed/programs/launch-functions',
      'stuck',
      'missed',
    );
    assert.match(
      missed.message,
      /^launch: rank 1 awaited .* Another rank failed: .*rank 1 has not joined group "world" \(timeout after 3\d\d ms\)/s,
    );
    assert.match(missed.cause as string, /timeout/);
    assert.deepEqual(missed.next, [0, 1]);
  });

  it('refuses an invalid size, program or option', async () => {
    const fn = (): number => 0;
    for (const call of [
      () => launch(0, fn),
      () => launch(65, fn),
      () => launch(1.5, fn),
      () => launch(2, 3 as never),
      () => launch(2, fn, { mode: 'thread' as never }),
      () => launch(2, 'file.js', { mode: 'local' }),
      () => launch(2, 'file.js'),
      () => launch(2, new URL('file:///nowhere/file.js')),
      () => launch(2, fn, { backend: 'mpi' }),
      () => launch(2, fn, { backend: 'cuda:gloo' }),
      () => launch(2, fn, { timeoutMs: 0 }),
      () => launch(2, 'file.js', { args: [1] as never }),
      () => launch(2, 'file.js', { env: { A: 1 } as never }),
      () => launch(2, fn, { nprocs: 2 } as never),
    ]) {
      await assert.rejects(call(), ArgumentError);
    }
    await assert.rejects(
      launch(2, 'nope.mts'),
      /^ArgumentError.*: launch: there is no file .*nope\.mts$/,
    );
    await assert.rejects(
      launch(2, fn, { seed: 'x' as never }),
      /: launch: expected seed to be a whole number from 0, got 'x'/,
    );
  });
});

describe('withRanks', () => {
  it(
    'runs a test on ranks of this process',
    withRanks(3, async (rank) => {
      const t = full([2], rank);
      allReduce(t);
      assert.deepEqual([...(await t.read())], [3, 3]);
    }),
  );

  it(
    'runs a test on processes (of this test alone: "$^.*")',
    withRanks(
      2,
      async (rank) => {
        const t = full([2], rank);
        allReduce(t);
        assert.deepEqual(t.tolist(), [1, 1]);
      },
      { mode: 'process' },
    ),
  );

  it('takes the place of functions in processes, which would run all tests', async () => {
    await assert.rejects(
      launch(2, () => 0, { mode: 'process' }),
      /^DistributedError.*: launch: .* test runner mocha here: .*withRanks\(2, fn, /,
    );
  });

  it('fails with the error and the number of the rank that threw', async () => {
    const test = withRanks(2, (rank) => assert.equal(rank, 0));
    await assert.rejects(
      test.call(undefined),
      (error: assert.AssertionError) =>
        error instanceof assert.AssertionError &&
        /^rank 1: /.test(error.message) &&
        error.actual === 1,
    );
  });

  it('names missing ranks before the test times out', async () => {
    const test = withRanks(
      2,
      async (rank) => {
        if (rank === 1) return new Promise((resolve) => setTimeout(resolve, 400));
        const t = ones([1]);
        allReduce(t);
        return t.read();
      },
      { timeoutMs: 100 },
    );
    await assert.rejects(test.call(undefined), /rank 0: .*rank 1 has not joined/);
  });

  it('replays the order and the failure of a seed', async () => {
    const orderOf = async (seed: number): Promise<string> => {
      const order: number[] = [];
      const turns = async (rank: number): Promise<void> => {
        for (let i = 0; i < 4; i++) {
          await barrier();
          order.push(rank);
        }
      };
      await withRanks(3, turns, { seed }).call(undefined);
      return order.join('');
    };
    const orders = await Promise.all([7, 7, 8, 9, 10].map(orderOf));
    assert.equal(orders[0], orders[1]);
    assert.ok(new Set(orders).size > 1, orders.join(' '));
    const lost = withRanks(2, () => barrier(), {
      faults: [{ rank: 1, at: { collective: 'barrier' }, kind: 'lose' }],
    });
    await assert.rejects(lost.call(undefined), /rank 1 was lost here by an injected fault/);
    for (const options of [{ seed: 1 }, { faults: [] }])
      assert.throws(
        () => withRanks(2, () => 0, { mode: 'process', ...options }),
        /seed and faults need mode .local./,
      );
  });

  it('refuses invalid options', () => {
    assert.throws(() => withRanks(0, () => 0), ArgumentError);
    assert.throws(() => withRanks(2, 3 as never), ArgumentError);
    assert.throws(() => withRanks(2, () => 0, { mode: 'threads' as never }), ArgumentError);
  });
});
