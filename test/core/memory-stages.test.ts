/**
 * The steps before an OutOfMemoryError, in order. SHARDWISE_CPU_MEMORY_LIMIT makes the machine
 * small.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { programArguments } from '../run-program.js';

interface Stage {
  tokens: number;
  retries: number;
  reserved: number;
}

interface Told {
  message: string;
  details: Record<string, unknown>;
}

interface Stages {
  cachedBefore: Stage;
  afterCache: Stage;
  garbageBefore: Stage;
  afterGarbage: Stage;
  full: Told;
  byOp: Told;
  total: number;
}

const MIB = 2 ** 20;
const LIMIT = 64 * MIB;

describe('when memory runs out', () => {
  let stages: Stages;

  before(function () {
    this.timeout(60_000);
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      programArguments('core/programs/memory-stages'),
      {
        encoding: 'utf8',
        env: { ...process.env, SHARDWISE_CPU_MEMORY_LIMIT: String(LIMIT) },
      },
    );
    assert.equal(status, 0, stderr);
    stages = JSON.parse(stdout) as Stages;
  });

  it('the allocator frees caches first, and collects no garbage if that is enough', () => {
    const { cachedBefore, afterCache } = stages;
    assert.ok(
      cachedBefore.reserved >= 28 * MIB,
      `${cachedBefore.reserved} bytes reserved, so too little was cached`,
    );
    assert.ok(afterCache.retries > cachedBefore.retries);
    assert.deepEqual([cachedBefore.tokens, afterCache.tokens], [1, 1]);
  });

  it('the allocator collects garbage next', () => {
    const { garbageBefore, afterGarbage } = stages;
    assert.equal(garbageBefore.tokens, 6);
    assert.ok(afterGarbage.retries > garbageBefore.retries);
    assert.equal(afterGarbage.tokens, 0);
  });

  it('an error is thrown last, with its numbers in details', () => {
    const { details, message } = stages.full;
    const { op, device, requestedBytes, allocatedBytes, reservedBytes, freeBytes, totalBytes } =
      details;
    assert.deepEqual(
      [op, device, requestedBytes, allocatedBytes, totalBytes],
      ['full', 'cpu', 30 * MIB, 56 * MIB, LIMIT],
    );
    assert.equal(freeBytes, LIMIT - (reservedBytes as number));
    assert.match(
      message,
      new RegExp(
        `^full: out of memory: ${30 * MIB} bytes were requested; allocated ${56 * MIB}, reserved ${reservedBytes},`,
      ),
    );
    assert.deepEqual(
      [stages.byOp.details['op'], stages.byOp.details['requestedBytes']],
      ['add', 16 * MIB],
    );
  });

  it('all live tensors keep their values', () => {
    assert.equal(stages.total, 12 * MIB);
  });
});
