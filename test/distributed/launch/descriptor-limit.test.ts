/** `launch` with too few file descriptors rejects, without an unhandled event and without leaks. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { programArguments } from '../../run-program.js';
import { leakedSegments } from '../support/leaked-segments.js';

interface Said {
  readonly name: string;
  readonly message: string;
  readonly rank: number | null;
  /** Milliseconds until then. */
  readonly ms: number;
}

/**
 * Of a program that launches ranks and may have `limit` descriptors, of which it opens all but
 * `spare`.
 */
function launchWith(limit: number, spare: number, mark: string): Promise<Said> {
  const command = [
    '-c',
    `ulimit -n ${limit}; exec "$0" "$@"`,
    process.execPath,
    ...programArguments('distributed/programs/descriptor-limit'),
    String(spare),
  ];
  return new Promise((resolve, reject) => {
    execFile(
      '/bin/sh',
      command,
      { timeout: 60_000, env: { ...process.env, SHARDWISE_TEST_MARK: mark } },
      (error, stdout, stderr) => {
        if (error) reject(new Error(`${error.message}\n${stderr}`));
        else resolve(JSON.parse(stdout) as Said);
      },
    );
  });
}

function processesWith(mark: string): string[] {
  return readdirSync('/proc').filter((pid) => {
    try {
      return (
        /^\d+$/.test(pid) &&
        Number(pid) !== process.pid &&
        readFileSync(`/proc/${pid}/environ`, 'utf8').includes(mark)
      );
    } catch {
      return false;
    }
  });
}

describe('launch with too few file descriptors', function () {
  this.timeout(120_000);

  it('names the rank that could not start and why, ends the others and leaks nothing', async () => {
    const before = leakedSegments();
    let named = 0;
    for (const spare of [0, 1, 2, 3, 4, 6, 8, 10, 12, 14]) {
      const mark = `descriptor-limit-${process.pid}-${spare}`;
      const { name, message, rank, ms } = await launchWith(100, spare, mark);
      assert.match(
        `${name} ${message}`,
        /^DistributedError .*launch: rank \d+ could not be run: spawn .* EMFILE.*ulimit -n|^StoreError .*(listen EMFILE|ulimit -n)/s,
      );
      if (rank !== null) {
        named++;
        assert.ok(rank < 4 && message.includes(`rank ${rank}`), message);
      }
      assert.ok(ms < 10_000, `${ms} ms with ${spare} descriptors`);
      assert.deepEqual(processesWith(mark), []);
    }
    assert.ok(named >= 3, `${named} runs got as far as a rank`);
    assert.deepEqual(leakedSegments(), before);
  });
});
