/** Ranks that wait in a collective for a rank that compiles longer than their timeout. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { compiledAutograd } from '../../lib/compile/index.js';
import { allReduce, launch } from '../../lib/distributed.js';
import { type CompileBackend, compile, compiler, ones, type Tensor } from '../../lib/index.js';
import {
  describeOverEngines,
  errorOf,
  onRanks,
  valuesOf,
} from '../distributed/support/on-ranks.js';
import { skipWithoutGloo } from '../distributed/support/skip-without-gloo.js';

const here = fileURLToPath(import.meta.url);
const program = path.join(path.dirname(here), 'programs', `compiling-ranks${path.extname(here)}`);

/** How long ranks block: three times the timeout. */
const BLOCK_MS = 1_200;

const block = (ms: number): void => {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
};
const slowly: CompileBackend = (module) => {
  block(BLOCK_MS);
  return module.forward.bind(module);
};
const step = (x: Tensor): Tensor => x.mul(2);

/** What rank 0 gets from a collective with rank 1, which does `work` first. */
async function sumAfter(work: () => unknown, timeoutMs = 400): Promise<number[]> {
  const sums = await onRanks(
    2,
    async (rank) => {
      const x = ones([2]);
      allReduce(x);
      await x.read();
      if (rank === 1) {
        await sleep(100); // the other rank waits by now
        await work();
      }
      allReduce(x);
      return valuesOf(x);
    },
    { timeoutMs },
  );
  return sums[0] as number[];
}

describeOverEngines('a collective of local ranks', () => {
  it('waits beyond its timeout for a rank that compiles', async () => {
    assert.deepEqual(await sumAfter(() => compile(step, { backend: slowly })(ones([2]))), [4, 4]);
  });

  it('waits for a rank that captures', async () => {
    const slow = (x: Tensor): Tensor => {
      block(BLOCK_MS);
      return x.mul(2);
    };
    assert.deepEqual(await sumAfter(() => compile(slow)(ones([2]))), [4, 4]);
  });

  it('waits for a rank that captures a backward pass', async () => {
    const backward = (): void => {
      const x = ones([2], { requiresGrad: true });
      const y = x.mul(2).sum();
      compiledAutograd.enable(
        (module) => {
          block(BLOCK_MS);
          return (...inputs) => module.run(inputs);
        },
        () => y.backward(),
      );
    };
    assert.deepEqual(await sumAfter(backward), [4, 4]);
  });

  it('waits while many functions are compiled, each for a short time', async () => {
    const briefly: CompileBackend = (module) => {
      block(20);
      return module.forward.bind(module);
    };
    const compileMany = (): void => {
      for (let n = 0; n < 60; n++)
        compile((x: Tensor) => x.mul(n), { backend: briefly })(ones([2]));
    };
    assert.deepEqual(await sumAfter(compileMany), [4, 4]);
  });

  it('still times out for a rank that blocks without compiling, and says so as before', async () => {
    const message = (await errorOf(sumAfter(() => block(BLOCK_MS)))).message;
    assert.match(message, /rank 1 has not come.* \(timeout after \d+ ms\)/);
  });

  it('times out beyond the limit of compilations, and names the rank and the graph', async () => {
    compiler.config.compileTimeoutMs = 200;
    try {
      const failing = sumAfter(() => compile(step, { backend: slowly })(ones([2])), 300);
      assert.match(
        (await errorOf(failing)).message,
        /rank 1 has been compiling the graph of step for \d\.\d s.* \(timeout after \d+ ms\)/,
      );
    } finally {
      compiler.config.compileTimeoutMs = 30 * 60_000;
    }
  });

  it('waits with its timeout again once a compilation has thrown', async () => {
    const failing: CompileBackend = () => {
      throw new RangeError('no compiler');
    };
    const thenBlocks = (): void => {
      assert.throws(() => compile(step, { backend: failing })(ones([2])), RangeError);
      block(BLOCK_MS);
    };
    assert.match((await errorOf(sumAfter(thenBlocks))).message, /rank 1 has not come/);
  });
});

for (const backend of ['shm', 'gloo']) {
  describe(`a collective of processes over ${backend}`, function () {
    this.timeout(60_000);
    const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-compiling-'));
    before(function () {
      if (backend === 'gloo') skipWithoutGloo(this);
    });
    after(() => rmSync(folder, { recursive: true }));

    /** What each rank saw; null for one that died. */
    async function run(
      scenario: string,
      { worldSize = 2, timeoutMs = 1_000 } = {},
    ): Promise<unknown[]> {
      const reports = mkdtempSync(path.join(folder, 'run-'));
      await launch(worldSize, program, {
        args: [scenario, reports, String(3 * timeoutMs)],
        backend,
        timeoutMs,
      }).catch((error: Error) => {
        if (scenario !== 'dies') throw error;
      });
      return Array.from({ length: worldSize }, (_, rank) => {
        try {
          return JSON.parse(readFileSync(path.join(reports, `rank-${rank}.json`), 'utf8'));
        } catch {
          return null;
        }
      });
    }

    it('waits beyond its timeout for a rank that compiles', async () => {
      assert.deepEqual(await run('compiles'), [
        [2, 2],
        [2, 2],
      ]);
    });

    it('waits for a rank that itself waits, in another group, for one that compiles', async () => {
      assert.deepEqual(await run('chain', { worldSize: 3 }), [
        [null, [2, 2]],
        [
          [2, 2],
          [2, 2],
        ],
        [[2, 2], null],
      ]);
    });

    it('still times out for a rank that blocks without compiling, and says so as before', async () => {
      const [seen] = await run('sleeps');
      assert.match(seen as string, /rank 1 has not come.* \(timeout after 1\d{3} ms\)/);
    });

    it('times out beyond the limit of compilations, and names the rank and the graph', async () => {
      const [seen] = await run('limited');
      assert.match(
        seen as string,
        /rank 1 has been compiling the graph of step for \d\.\d s.* \(timeout after 1\d{3} ms\)/,
      );
    });

    it('fails at once if the rank dies while it compiles', async () => {
      const [seen] = await run('dies', { timeoutMs: 20_000 });
      const [message, ms] = seen as [string, number];
      assert.match(message, /rank 1 has died/);
      assert.ok(ms < 5_000, `after ${ms} ms`);
    });

    it('names both graphs and the node at the first call, if the graphs of ranks differ', async () => {
      for (const seen of await run('differs')) {
        assert.match(
          seen as string,
          /%allReduce of the graph of summed, at .*compiling-ranks\.[jt]s:\d+/,
        );
        assert.match(
          seen as string,
          /%allGather of the graph of gathered, at .*compiling-ranks\.[jt]s:\d+/,
        );
      }
    });
  });
}
