/**
 * Failures among ranks with GPUs: every rank gets an error with cause and call site, and none
 * hangs.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { runLocalRanks } from '../../../lib/distributed/local-ranks/run.js';
import { allReduce, broadcast, DeviceMesh, launch } from '../../../lib/distributed.js';
import { cuda, full, type Tensor } from '../../../lib/index.js';
import { skipBecause, skipWithoutCuda } from '../../skip.js';
import { errorOf } from '../support/on-ranks.js';

const device = 'cuda' as const;
const here = fileURLToPath(import.meta.url);
const filled = (count: number): Tensor => full([count], 1, { device });
const called = (t: Tensor): Tensor => {
  allReduce(t);
  return t;
};

/** What each rank's reading fails with. */
function failures(
  size: number,
  call: (rank: number) => Promise<Tensor>,
  timeoutMs = 30_000,
): Promise<string[]> {
  return runLocalRanks(
    size,
    async (rank) => (await errorOf(call(rank).then((t) => t.read()))).message,
    { timeoutMs },
  );
}

describe('the error of GPU ranks of one process', function () {
  this.timeout(60_000);
  before(function () {
    skipWithoutCuda(this);
  });

  // More ranks than GPUs share them, and go through the memory of the host: what they are told is
  // the same.
  const worlds = (): number[] =>
    [cuda.deviceCount(), cuda.deviceCount() + 1].filter((size) => size > 1);

  async function inTime(call: () => Promise<void>): Promise<void> {
    const begin = Date.now();
    await call();
    assert.ok(Date.now() - begin < 15_000, `it took ${Date.now() - begin} ms`);
  }

  for (const when of ['in the first call', 'later']) {
    it(`names both calls and call sites on all ranks if the collective differs, ${when}`, async () => {
      for (const size of worlds()) {
        await inTime(async () => {
          const messages = await failures(size, async (rank) => {
            if (when === 'later') await called(filled(2)).read();
            const t = filled(4);
            if (rank === 1) broadcast(t, 0);
            else allReduce(t);
            return t;
          });
          for (const message of messages) {
            assert.match(
              message,
              new RegExp(`\\(call ${when === 'later' ? 2 : 1} of group "world"\\)`),
            );
            assert.match(message, /broadcast of 4 float32 from rank 0 at/);
            assert.match(message, /allReduce of 4 float32 \(sum\) at/);
            assert.ok(message.split(path.basename(here)).length > 2, `both call sites: ${message}`);
          }
        });
      }
    });
  }

  it('reports a different shape also if a rank is ahead', async () => {
    for (const size of worlds()) {
      await inTime(async () => {
        const messages = await failures(size, async (rank) => {
          await called(filled(2)).read();
          if (rank === 1) await sleep(300);
          const t = called(filled(rank === 1 ? 5 : 4));
          for (let i = 0; i < 10; i++) allReduce(t);
          return t;
        });
        for (const message of messages)
          assert.match(message, /of [45] float32 \(sum\) at .*of [45] float32 \(sum\) at /);
      });
    }
  });

  it('names a rank that throws, and the call that waits for it', async () => {
    for (const size of worlds()) {
      const seen: string[] = [];
      await inTime(async () => {
        const error = await errorOf(
          runLocalRanks(
            size,
            async (rank) => {
              await called(filled(2)).read();
              if (rank === 1) await sleep(300);
              if (rank === 1) throw new RangeError('boom');
              seen.push((await errorOf(called(filled(4)).read())).message);
            },
            { timeoutMs: 30_000 },
          ),
        );
        assert.match(error.message, /rank 1 failed: boom/);
      });
      assert.equal(seen.length, size - 1);
      for (const message of seen)
        assert.match(message, /rank \d aborted the group: rank 1 failed: boom/);
    }
  });

  it('names after the timeout the missing rank and its last call', async () => {
    for (const size of worlds()) {
      const messages = await failures(
        size,
        async (rank) => {
          await called(filled(2)).read();
          if (rank === 1) await sleep(4_000);
          return called(filled(4));
        },
        1_000,
      );
      for (const [rank, message] of messages.entries()) {
        if (rank !== 1)
          assert.match(
            message,
            /allReduce \(call 2 of group "world"\) at .*: rank 1 has not come, its last call was allReduce of 2 float32 \(sum\) at .*\(call 1\)/,
          );
      }
    }
  });

  describe('about meshes', () => {
    const size = (): number => cuda.deviceCount();
    const reversed = (): number[] => Array.from({ length: size() }, (_, i) => size() - 1 - i);
    const summed = (t: Tensor, mesh: DeviceMesh): Tensor => {
      allReduce(t, { group: mesh.getGroup() });
      return t;
    };
    before(function () {
      if (size() < 2) skipBecause(this, 'one GPU, it takes two');
    });

    it('names after the timeout the rank that has not created the mesh', async () => {
      await inTime(async () => {
        const messages = await failures(
          size(),
          async (rank) => {
            await called(filled(2)).read();
            if (rank !== 1) return summed(filled(4), new DeviceMesh(device, reversed()));
            await sleep(3_000);
            return called(filled(4));
          },
          1_000,
        );
        for (const [rank, message] of messages.entries()) {
          if (rank === 1)
            assert.match(message, /allReduce \(call \d+ of group .*: the group has failed before/s);
          else
            assert.match(
              message,
              /DeviceMesh \(call \d+ of group "world"\) at .*cuda-engine-failures\.gpu\.test\.\w+:\d+.*: rank 1 has not come/,
            );
        }
      });
    });

    it('names global ranks', async () => {
      await inTime(async () => {
        const messages = await failures(size(), async (rank) => {
          const group = new DeviceMesh(device, reversed()).getGroup();
          const t = filled(4);
          await summed(t, new DeviceMesh(device, reversed())).read();
          broadcast(t, rank === 1 ? 1 : 0, { group });
          return t;
        });
        for (const message of messages) {
          assert.match(message, /broadcast of 4 float32 from rank 0 at/);
          assert.match(
            message,
            /(: rank 1 called|rank 1|this rank) broadcast of 4 float32 from rank 1 at/,
          );
        }
        assert.match(messages[0] as string, /rank 1 (called )?broadcast of 4 float32 from rank 1/);
      });
    });

    it('reports a mismatch of meshes at once', async () => {
      await inTime(async () => {
        const messages = await failures(2, async (rank) => {
          const t = filled(4);
          if (rank === 0) return summed(t, new DeviceMesh(device, [1, 0]));
          allReduce(t, { group: new DeviceMesh(device, [[0], [1]]).getGroup(1) });
          return t;
        });
        for (const message of messages) {
          assert.match(
            message,
            /DeviceMesh \(group creation 1 of group "world"\): rank \d created DeviceMesh\(cuda, 2.* at .*cuda-engine-failures\.gpu\.test\.\w+:\d+/,
          );
          assert.ok(message.split(path.basename(here)).length > 2, `both places: ${message}`);
        }
      });
    });

    it('reports at once a rank that throws instead', async () => {
      const seen: string[] = [];
      await inTime(async () => {
        const error = await errorOf(
          runLocalRanks(
            size(),
            async (rank) => {
              await called(filled(2)).read();
              if (rank === 1) await sleep(300);
              if (rank === 1) throw new RangeError('boom');
              seen.push(
                (await errorOf(summed(filled(4), new DeviceMesh(device, reversed())).read()))
                  .message,
              );
            },
            { timeoutMs: 30_000 },
          ),
        );
        assert.match(error.message, /rank 1 failed: boom/);
      });
      for (const message of seen)
        assert.match(message, /rank \d (aborted the group|failed): .*boom/);
    });
  });
});

describe('the error of GPU ranks that are processes', function () {
  this.timeout(120_000);
  const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-gpu-ranks-'));
  before(function () {
    skipWithoutCuda(this);
    if (cuda.deviceCount() < 2) skipBecause(this, 'one GPU, it takes two');
  });
  after(() => rmSync(folder, { recursive: true }));

  interface Heard {
    readonly message: string;
    readonly ms: number;
  }
  /** What the ranks of a scenario heard; `but` of them not. */
  async function heard(
    name: string,
    timeoutMs: number,
    but: number | null = null,
  ): Promise<[Heard[], Error | null]> {
    const reports = mkdtempSync(path.join(folder, `${name}-`));
    const program = path.join(
      path.dirname(here),
      '..',
      'programs',
      `gpu-ranks${path.extname(here)}`,
    );
    const size = cuda.deviceCount();
    const error = await launch(size, program, { args: [name, reports], timeoutMs }).then(
      () => null,
      (caught: Error) => caught,
    );
    const ranks = Array.from({ length: size }, (_, rank) => rank).filter((rank) => rank !== but);
    return [
      ranks.map(
        (rank) =>
          JSON.parse(readFileSync(path.join(reports, `rank-${rank}.json`), 'utf8')) as Heard,
      ),
      error,
    ];
  }

  it('reports a different call before it hangs', async () => {
    for (const name of ['differ', 'shapes']) {
      const [all] = await heard(name, 60_000);
      for (const { message, ms } of all) {
        assert.match(
          message,
          /\(call 2 of group "world"\): ranks? \d[\d, and]* called .* at .*gpu-ranks\.\w+:\d+.* (this rank|rank \d) .* at .*gpu-ranks\.\w+:\d+/s,
        );
        assert.ok(ms < 10_000, `it took ${ms} ms`);
      }
    }
  });

  it('names what another rank has thrown, and the call that waited', async () => {
    const [all, error] = await heard('throws', 60_000, 1);
    assert.match((error as Error).message, /rank 1 .*: no data for this rank/);
    for (const { message } of all)
      assert.match(
        message,
        /allReduce \(call 2 of group "world"\) at .*: rank 1 aborted the group: no data for this rank/s,
      );
  });

  it('reports a killed rank within a second, while GPUs wait for it', async () => {
    const [all, error] = await heard('killed', 60_000, 1);
    assert.match((error as Error).message, /rank 1 .* was ended by SIGKILL/);
    for (const { message, ms } of all) {
      assert.match(
        message,
        /allReduce \(call 2 of group "world"\) at .*: rank 1 has died \(process \d+\), its last call was allReduce of 2 float32 \(sum\) at .*\(call 1\)/s,
      );
      assert.ok(ms < 2_000, `it took ${ms} ms`);
    }
  });

  it('reports a killed rank within a second, while NCCL waits for it', async () => {
    const [all, error] = await heard('killedInNccl', 60_000, 1);
    assert.match((error as Error).message, /rank 1 .* was ended by SIGKILL/);
    for (const { message, ms } of all) {
      assert.match(message, /allReduce \(call 2 of group "world"\) at .*: rank 1 has died/s);
      assert.ok(ms < 3_000, `it took ${ms} ms`);
    }
  });

  it('names the group of parameters that waited for a rank killed in training', async () => {
    const [all, error] = await heard('killedInTraining', 60_000, 1);
    assert.match((error as Error).message, /rank 1 .* was ended by SIGKILL/);
    for (const { message, ms } of all) {
      assert.match(message, /at fullyShard of .*: rank 1 has died \(process \d+\)/s);
      assert.ok(ms < 3_000, `it took ${ms} ms`);
    }
  });

  it('names after the timeout the rank that stopped in training, and ends it', async () => {
    const begin = Date.now();
    const [all, error] = await heard('stoppedInTraining', 2_500, 1);
    assert.ok(Date.now() - begin < 60_000, `it took ${Date.now() - begin} ms`);
    assert.match((error as Error).message, /rank \d .* ended with exit code 3/);
    for (const { message } of all)
      assert.match(message, /at fullyShard of .*: rank 1 has not come.*timeout after 2500 ms/s);
  });

  it('reports within a second a rank that was killed before it created the mesh', async () => {
    const [all] = await heard('meshes', 60_000, 1);
    for (const { message, ms } of all) {
      assert.match(
        message,
        /DeviceMesh \(call \d+ of group "world"\) at .*gpu-ranks\.\w+:\d+.*: rank 1 has died \(process \d+\)/s,
      );
      assert.ok(ms < 2_000, `it took ${ms} ms`);
    }
  });

  it('names after the timeout the missing rank, and its last call', async () => {
    const [all] = await heard('late', 2_000);
    for (const { message } of all)
      assert.match(
        message,
        /rank 1 has not come, its last call was allReduce of 2 float32 \(sum\) at .*\(call 1\) \(timeout after 2000 ms\)/s,
      );
  });

  it('does not come while the missing rank compiles', async () => {
    const [all, error] = await heard('compiles', 2_000);
    assert.deepEqual([error, all.map(({ message }) => message)], [null, all.map(() => 'no error')]);
  });

  it('names after the timeout a rank that has compiled for too long', async () => {
    const [all] = await heard('compilesTooLong', 2_000);
    assert.match(
      (all[0] as Heard).message,
      /rank 1 has been compiling the graph of step for \d\.\d s, its last call was allReduce/,
    );
  });
});
